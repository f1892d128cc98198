// Exceptions through several frames, with destructors on the way. Compiled with -finstrument-functions by logging.rs.
#include <stdexcept>

static volatile unsigned long sink;

struct Guard {
    __attribute__((noinline)) ~Guard() {
        sink = sink + 1;
    }
};

__attribute__((noinline)) void throws(int depth) {
    Guard guard;
    if (depth == 0)
        throw std::runtime_error("thrown");
    throws(depth - 1);
    sink = sink + 1;
}

__attribute__((noinline)) int catches(int times) {
    int caught = 0;
    for (int round = 0; round < times; round++) {
        try {
            throws(3);
        } catch (const std::exception &) {
            caught++;
        }
    }
    return caught;
}

int main() {
    return catches(4) == 4 ? 0 : 1;
}
