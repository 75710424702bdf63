// Compiles refused-host.c as C++.
#include "refused-host.c"
