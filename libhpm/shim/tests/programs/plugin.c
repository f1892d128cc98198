/* Loaded by calls.c with dlopen. */
static volatile unsigned long sink;

__attribute__((noinline)) void inside(void) {
    sink++;
}

void plugged(void) {
    for (int round = 0; round < 10; round++)
        inside();
}
