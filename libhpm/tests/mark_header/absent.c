/* Marks where no driver is: nothing happens. */
#include <hpm_mark.h>

#include <stdio.h>

int main(void) {
    struct hpm_marks marks;
    int kept = 1, opened = hpm_marks_open(&marks);
    int marked = hpm_mark(&marks, "nobody", 1);
    int asked = hpm_mark_now(&marks, "nobody", 1, &kept);
    hpm_marks_close(&marks);
    printf("%d %d %d %d\n", opened, marked, asked, kept);
    return 0;
}
