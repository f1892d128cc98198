/* Nested calls whose stacks the tests of unwinding and symbols know. Lines are named by their comments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile unsigned long sink;
volatile int go_on = 1;

static inline __attribute__((always_inline)) void inlined(unsigned long value)
{
    sink += value * 3; /* line: inlined body */
}

__attribute__((noinline)) void innermost(unsigned long value)
{
    inlined(value); /* line: inlined call */
    sink ^= value;
}

static int compare(const void *left, const void *right)
{
    innermost(*(const unsigned char *)left);
    return *(const unsigned char *)left - *(const unsigned char *)right;
}

__attribute__((noinline)) void sorting(char *text)
{
    qsort(text, strlen(text), 1, compare);
    innermost(text[0]);
}

__attribute__((noinline)) void middle(unsigned long depth)
{
    char text[64];
    strcpy(text, "the quick brown fox jumps over the lazy dog");
    if (depth > 0)
        middle(depth - 1);
    else
        sorting(text);
    sink += text[depth];
}

int main(void)
{
    puts("running");
    fflush(stdout);
    while (go_on)
        middle(3);
    return 0;
}
