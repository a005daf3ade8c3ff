/* What stands for a library of another interface. */
#include <stdint.h>

uint32_t alv_version(void);
uint32_t alv_version(void) { return UINT32_MAX; }

int32_t alv_check_version(uint32_t header);
int32_t alv_check_version(uint32_t header) {
    (void)header;
    return 0;
}

int32_t alv_machine_sim(const void *options, void **out);
int32_t alv_machine_sim(const void *options, void **out) {
    (void)options;
    *out = (void *)1;
    return 0;
}
