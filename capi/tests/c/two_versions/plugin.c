/* Linked with the library of this interface. */
#include <alluvion.h>

#include <stdio.h>

int works(void);

int works(void) {
    alv_machine *machine = NULL;
    if (alv_check_version(ALV_VERSION) != ALV_OK || alv_version() != ALV_VERSION || alv_machine_sim(NULL, &machine) != ALV_OK) {
        fprintf(stderr, "the plugin got another library than its own: %#x\n", (unsigned)alv_version());
        return 0;
    }
    alv_machine_release(machine);
    puts("two versions: ok");
    return 1;
}
