/* What refused.cpp has for refused-host.c. */
#ifndef MALLARD_E2E_REFUSED_H
#define MALLARD_E2E_REFUSED_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Makes the requests and catches what they throw. */
__attribute__((visibility("default"))) void refused_inside(size_t size);
/* Throws std::bad_alloc. */
__attribute__((visibility("default"))) void refused_throws(size_t size);
#ifdef __cplusplus
}
#endif
#endif
