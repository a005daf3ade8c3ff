/* What a program asks of the version, and of structs and statuses that it did not get from a call of its own. */
#include "expect.h"

#if ALV_VERSION < 0x1000 || ALV_VERSION >= 0x1000000
#error "the version is from 0.1 on, and before 1.0"
#endif

static const char version[] = ALV_VERSION_STRING;
/* Outside of functions, too. */
static alv_counts counts = ALV_INIT(alv_counts);

int main(void) {
    unsigned major = 99, minor = 99, patch = 99;
    EXPECT(sscanf(version, "%u.%u.%u", &major, &minor, &patch) == 3);
    EXPECT((major << 24 | minor << 12 | patch) == ALV_VERSION && ALV_VERSION == alv_version());
    OK(alv_check_version(ALV_VERSION));
    EXPECT_STATUS(alv_check_version(ALV_VERSION + 0x1000), ALV_UNSUPPORTED);

    EXPECT(counts.struct_size == sizeof counts && counts.bytes.total == 0);
    counts.bytes.total = 7;
    counts = (alv_counts)ALV_INIT(alv_counts);
    EXPECT(counts.struct_size == sizeof counts && counts.bytes.total == 0);

    EXPECT(strcmp(alv_status_text(ALV_OUT_OF_MEMORY), "out of memory") == 0);
    EXPECT(strcmp(alv_status_text(12345), "an unknown status") == 0);
    puts("versions: ok");
    return 0;
}
