/* The kind of a character by the C library's functions: there is no table of it. */
namespace std {
bool ctype<char>::is(mask kinds, char c) const {
    if (_M_table)
        return _M_table[static_cast<unsigned char>(c)] & kinds;
    const int value = static_cast<unsigned char>(c);
    return ((kinds & upper) && isupper(value)) || ((kinds & lower) && islower(value)) ||
           ((kinds & alpha) && isalpha(value)) || ((kinds & digit) && isdigit(value)) ||
           ((kinds & xdigit) && isxdigit(value)) || ((kinds & space) && isspace(value)) ||
           ((kinds & print) && isprint(value)) || ((kinds & cntrl) && iscntrl(value)) ||
           ((kinds & punct) && ispunct(value)) || ((kinds & blank) && isblank(value));
}

const char *ctype<char>::is(const char *from, const char *to, mask *kinds) const {
    const mask all[] = {upper, lower, alpha, digit, xdigit, space, print, cntrl, punct, blank};
    for (; from < to; ++from, ++kinds) {
        *kinds = 0;
        for (mask kind : all)
            *kinds |= is(kind, *from) ? kind : 0;
    }
    return to;
}

const char *ctype<char>::scan_is(mask kinds, const char *from, const char *to) const {
    while (from < to && !is(kinds, *from))
        ++from;
    return from;
}

const char *ctype<char>::scan_not(mask kinds, const char *from, const char *to) const {
    while (from < to && is(kinds, *from))
        ++from;
    return from;
}
} // namespace std
