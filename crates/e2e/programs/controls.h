/* Macros for mallctl's names. The program declares mallctl itself, because only some programs are
 * linked with the library. */
#ifndef MALLARD_E2E_CONTROLS_H
#define MALLARD_E2E_CONTROLS_H

#include "check.h"

/* The value of a name, of this type. */
#define GET(type, name)                                                                            \
    ({                                                                                             \
        type value_;                                                                               \
        size_t size_ = sizeof value_;                                                              \
        CHECK(mallctl(name, &value_, &size_, NULL, 0) == 0);                                       \
        CHECK(size_ == sizeof value_);                                                             \
        value_;                                                                                    \
    })

/* Sets a name to a value of this type. Returns mallctl's result. */
#define SET(type, name, new)                                                                       \
    ({                                                                                             \
        type value_ = (new);                                                                       \
        mallctl(name, NULL, NULL, &value_, sizeof value_);                                         \
    })

#endif
