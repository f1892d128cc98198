/*
 * Asks libpfm4 for the encodings of events: reads their names, `PMU::EVENT:MASK`, a line each, and writes a line for each: the
 * codes in hexadecimal, or `-` and why there are none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <perfmon/pfmlib.h>

int main(void)
{
	char name[512];
	int error = pfm_initialize();

	if (error != PFM_SUCCESS) {
		fprintf(stderr, "pfm_initialize: %s\n", pfm_strerror(error));
		return 1;
	}
	while (fgets(name, sizeof name, stdin)) {
		pfm_pmu_encode_arg_t arg = { .size = sizeof arg };

		name[strcspn(name, "\n")] = 0;
		error = pfm_get_os_event_encoding(name, PFM_PLM0 | PFM_PLM3, PFM_OS_NONE, &arg);
		if (error != PFM_SUCCESS) {
			printf("- %s\n", pfm_strerror(error));
			continue;
		}
		for (int i = 0; i < arg.count; i++)
			printf("%s%" PRIx64, i ? " " : "", arg.codes[i]);
		printf("\n");
		free(arg.codes);
	}
	return 0;
}
