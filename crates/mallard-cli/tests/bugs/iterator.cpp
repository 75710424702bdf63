// Keeps a pointer into a vector that grows meanwhile.
#include <cstdio>
#include <vector>

struct Point {
    double x, y, z;
};

__attribute__((noinline)) static void add(std::vector<Point> &points) {
    points.push_back(Point{1, 2, 3}); // FREED
}

__attribute__((noinline)) static void move(Point *point) {
    point->x += 1; // BUG
}

int main() {
    std::vector<Point> points(4);
    Point *first = &points.front();
    add(points);
    move(first);
    std::printf("%g\n", points.front().x);
    return 0;
}
