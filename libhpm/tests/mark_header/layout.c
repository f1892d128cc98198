/* Prints what hpm_mark.h says of the driver's interface, one `name number` in each line. */
#include <hpm_mark.h>

#include <stdio.h>

#define SAY(name, number) printf("%s %lu\n", name, (unsigned long)(number))
#define FIELD(type, field) SAY(#type "." #field, offsetof(struct type, field))

int main(void) {
    SAY("version", HPM_ABI_VERSION);
    SAY("name bytes", HPM_MARKER_NAME_BYTES);
    SAY("page bytes", HPM_PAGE_BYTES);
    SAY("page markers", HPM_PAGE_MARKERS);
    SAY("mark", HPM_IOCTL_MARK);
    SAY("marker page", HPM_IOCTL_MARKER_PAGE);
    SAY("hpm_envelope", sizeof(struct hpm_envelope));
    FIELD(hpm_envelope, version);
    FIELD(hpm_envelope, size);
    FIELD(hpm_envelope, reason);
    FIELD(hpm_envelope, reserved);
    FIELD(hpm_envelope, detail);
    SAY("hpm_mark_request", sizeof(struct hpm_mark_request));
    FIELD(hpm_mark_request, value);
    FIELD(hpm_mark_request, name);
    FIELD(hpm_mark_request, kept);
    SAY("hpm_marker_page_request", sizeof(struct hpm_marker_page_request));
    FIELD(hpm_marker_page_request, offset);
    SAY("hpm_page_marker", sizeof(struct hpm_page_marker));
    FIELD(hpm_page_marker, tsc);
    FIELD(hpm_page_marker, value);
    FIELD(hpm_page_marker, name);
    SAY("hpm_marker_page", sizeof(struct hpm_marker_page));
    FIELD(hpm_marker_page, produced);
    FIELD(hpm_marker_page, taken);
    FIELD(hpm_marker_page, markers);
    return 0;
}
