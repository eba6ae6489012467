# GPUMEM_SLURM: finds Slurm's headers (spank.h) and libslurm (the daemon alone links it).
# --with-slurm=PREFIX names a Slurm outside the system's directories.
AC_DEFUN([GPUMEM_SLURM], [
  AC_ARG_WITH([slurm],
    [AS_HELP_STRING([--with-slurm=PREFIX], [Slurm's installation, if not the system's])], [], [with_slurm=system])
  AS_IF([test "$with_slurm" != system && test "$with_slurm" != yes],
    [SLURM_CPPFLAGS="-I$with_slurm/include"; SLURM_LDFLAGS="-L$with_slurm/lib"])
  gpumem_saved_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
  AC_CHECK_HEADER([slurm/spank.h], [], [AC_MSG_ERROR([slurm/spank.h is missing: install libslurm-dev or name Slurm with --with-slurm=PREFIX])])
  CPPFLAGS=$gpumem_saved_CPPFLAGS
  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_LDFLAGS])
  AC_SUBST([SLURM_LIBS], [-lslurm])
  AC_SUBST([MUNGE_LIBS], [-lmunge])
])
