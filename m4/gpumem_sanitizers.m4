# GPUMEM_SANITIZERS: --enable-sanitizers=address,undefined|thread for tests of the programs (never for preloaded libraries).
AC_DEFUN([GPUMEM_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [build programs and unit tests with these sanitizers])],
    [], [enable_sanitizers=no])
  AS_IF([test "$enable_sanitizers" != no],
    [AS_IF([test "$enable_sanitizers" = yes], [enable_sanitizers=address,undefined])
     SANITIZER_FLAGS="-fsanitize=$enable_sanitizers -fno-omit-frame-pointer"])
  AC_SUBST([SANITIZER_FLAGS])
])
