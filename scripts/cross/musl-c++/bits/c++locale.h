/* The locale of libstdc++ where the C library has one for the whole process only, as the library
 * of Alpine was configured: an unused pointer. */
#pragma once
#pragma GCC system_header
#include <clocale>
#include <cstdarg>
#include <cstdio>
#define _GLIBCXX_NUM_CATEGORIES 0
namespace std {
typedef int *__c_locale;
inline int __convert_from_v(const __c_locale &, char *out, const int size, const char *format,
                            ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(out, size, format, arguments);
    va_end(arguments);
    return length;
}
} // namespace std
