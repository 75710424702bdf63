// Compiles requests.c as C++, with the forms of `operator new` that throw.
#include "requests.c"
