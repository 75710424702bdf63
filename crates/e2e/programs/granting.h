/* What a program that granting.c runs may say to it. */
#ifndef MALLARD_E2E_GRANTING_H
#define MALLARD_E2E_GRANTING_H
enum { COUNT_BEGIN = -7000, COUNT_END = -7001 };
#endif
