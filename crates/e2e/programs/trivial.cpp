/* The smallest program with the C++ runtime, which allocates before any library is initialised.
 * With an argument, shows a file of /proc/self at its end. */
#include "show.h"
#include <string>

int main(int count, char **arguments) {
    std::string text(100, 'a');
    text += text;
    return count > 1 ? show(arguments[1]) : text.size() != 200;
}
