#include <stdlib.h>
void plugin_run(void) { free(malloc(9)); }
