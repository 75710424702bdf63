// map: one thread inserts the numbers from 0 upwards into a std::map<int, int>: one allocation per
// node, with tree walks in between. The clock covers the inserts and the map's destruction, as
// `time` around the whole program does.
#include "workload.h"

#include <map>

enum { COUNT, PARAMS };
static Param params[PARAMS] = {
    {"count", 10000000, 1, INT32_MAX},
};

int main(int argc, char **argv) {
    parse_params(argc, argv, params, PARAMS);
    const int count = static_cast<int>(params[COUNT].value);
    const double start = now();
    {
        std::map<int, int> map;
        for (int i = 0; i < count; ++i)
            map.insert(std::map<int, int>::value_type(i, i));
    }
    print_result(now() - start, params[COUNT].value * 2);
    return 0;
}
