/* What bc's configure finds on a machine with glibc, as far as bc asks for it. */
#define BC_COPYRIGHT ""
#define HAVE_ERRNO_H 1
#define HAVE_ISGRAPH 1
#define HAVE_LIMITS_H 1
#define HAVE_STDARG_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STRING_H 1
#define HAVE_UNISTD_H 1
#define HAVE_VPRINTF 1
#define PACKAGE "bc"
#define STDC_HEADERS 1
#define VERSION "1.07.1"
