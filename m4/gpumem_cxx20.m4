# GPUMEM_CXX20: puts the compiler in C++20 mode and substitutes the warnings that every directory uses.
AC_DEFUN([GPUMEM_CXX20], [
  CXX="$CXX -std=c++20"
  AC_MSG_CHECKING([whether $CXX compiles C++20])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <span>
#include <compare>
#include <concepts>]], [[std::span<int> s; return s.size() == 0 ? 0 : 1;]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no]); AC_MSG_ERROR([a C++20 compiler is needed (g++ 11 or newer)])])
  WARNING_FLAGS="-Wall -Wextra -Wshadow -Wno-missing-field-initializers"
  AC_SUBST([WARNING_FLAGS])
])
