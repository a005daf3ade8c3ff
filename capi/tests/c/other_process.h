/*
 * Two processes that share memory: what each has, how they speak over a Unix socket, how the other one is started, and how it is
 * killed.
 */
#ifndef OTHER_PROCESS_H
#define OTHER_PROCESS_H

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

enum { WORDS = 1 << 18, BYTES = WORDS * 4 };

/* What the second half is when the other side has written. */
#define WRITTEN 0xA5A5A5A5u

static inline void word_pattern(uint32_t *words, uint32_t seed) {
    for (uint32_t at = 0; at < WORDS; at++) words[at] = (at + seed) * 2654435761u;
}

/* One side: a machine, and a stream and memory of it. */
typedef struct {
    alv_machine *machine;
    alv_stream *stream;
    alv_resource *memory;
    int socket;
} side;

static inline side begin_side(alv_machine *machine, int device, const char *recipe, int socket) {
    side made = {machine, NULL, NULL, socket};
    OK(alv_stream_create_on(machine, device, &made.stream));
    OK(alv_resource_from_recipe_on(machine, recipe, device, &made.memory));
    return made;
}

static inline void end_side(const side *here) {
    alv_stream_release(here->stream);
    alv_resource_release(here->memory);
}

static inline void copy(const side *here, void *to, const void *from, size_t bytes) {
    OK(alv_copy_raw(here->memory, to, from, bytes, alv_stream_handle(here->stream)));
    OK(alv_stream_synchronize(here->stream));
}

static inline void require_words(const side *here, const void *block, uint32_t seed, int is_written) {
    uint32_t *expected = malloc(BYTES), *found = malloc(BYTES);
    EXPECT(expected != NULL && found != NULL);
    word_pattern(expected, seed);
    for (size_t at = WORDS / 2; is_written && at < WORDS; at++) expected[at] = WRITTEN;
    copy(here, found, block, BYTES);
    EXPECT(memcmp(expected, found, BYTES) == 0);
    free(expected);
    free(found);
}

/* A step that one side tells the other of. 0 if the other side has gone. */
static inline char wait_for_step(int socket) {
    char step = 0;
    return read(socket, &step, 1) == 1 ? step : 0;
}

static inline void tell(int socket, char step) { EXPECT(send(socket, &step, 1, MSG_NOSIGNAL) == 1); }

/* A message, and the descriptor of memory that needs one. */
static inline void send_message(int socket, const alv_shared *shared) {
    unsigned char bytes[ALV_MESSAGE_BYTES];
    size_t length = 0;
    OK(alv_shared_message(shared, bytes, sizeof bytes, &length));
    alv_message told = ALV_INIT(alv_message);
    OK(alv_message_read(bytes, length, &told));
    const int descriptor = alv_shared_descriptor(shared);
    EXPECT((descriptor >= 0) == ((told.flags & ALV_MESSAGE_NEEDS_DESCRIPTOR) != 0) && told.bytes == BYTES);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {bytes, length};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        packet.msg_control = control.bytes;
        packet.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    }
    /* Of a socket that keeps packets together. */
    EXPECT(sendmsg(socket, &packet, MSG_NOSIGNAL) == (ssize_t)length);
}

static inline size_t receive_message(int socket, unsigned char *bytes, int *descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {bytes, ALV_MESSAGE_BYTES};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    const ssize_t length = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
    EXPECT(length > 0 && (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0);
    *descriptor = -1;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    if (rights != NULL) memcpy(descriptor, CMSG_DATA(rights), sizeof(int));
    return (size_t)length;
}

/* A process: a simulated one, with a thread that does what it does; with ON_A_GPU one of the system. */
typedef struct {
    int socket;
#ifdef ON_A_GPU
    pid_t child;
#else
    int of_child;
    alv_machine *machine;
    pthread_t thread;
    void (*role)(alv_machine *machine, int device, int socket);
    int device;
#endif
} process;

#ifdef ON_A_GPU

static inline void start_on(process *other, alv_machine *machine, int device, const char *role) {
    (void)machine;
    char number[16];
    snprintf(number, sizeof number, "%d", device);
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    other->socket = pair[0];
    other->child = fork();
    EXPECT(other->child >= 0);
    if (other->child == 0) {
        /* Another program from here on, which finds the socket as its input. */
        if (dup2(pair[1], STDIN_FILENO) == STDIN_FILENO) execl("/proc/self/exe", "processes", role, number, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
}

static inline void join(process *other) {
    int status = 0;
    EXPECT(waitpid(other->child, &status, 0) == other->child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(other->socket);
}

static inline void kill_and_join(process *other) {
    int status = 0;
    EXPECT(kill(other->child, SIGKILL) == 0);
    EXPECT(waitpid(other->child, &status, 0) == other->child && WIFSIGNALED(status));
    close(other->socket);
}

#else

static void import(alv_machine *machine, int device, int socket);
static void export(alv_machine *machine, int device, int socket);

static inline void *run(void *of_process) {
    process *other = of_process;
    other->role(other->machine, other->device, other->of_child);
    return NULL;
}

static inline void start_on(process *other, alv_machine *machine, int device, const char *role) {
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    other->socket = pair[0];
    other->of_child = pair[1];
    other->role = strcmp(role, "import") == 0 ? import : export;
    other->device = device;
    OK(alv_sim_process(machine, &other->machine));
    EXPECT(pthread_create(&other->thread, NULL, run, other) == 0);
}

static inline void join(process *other) {
    close(other->socket);
    EXPECT(pthread_join(other->thread, NULL) == 0);
    close(other->of_child);
    size_t count = 1;
    OK(alv_sim_report(other->machine, to_stderr, NULL, &count));
    EXPECT(count == 0);
    alv_machine_release(other->machine);
}

static inline void kill_and_join(process *other) {
    OK(alv_sim_kill(other->machine));
    join(other);
}

#endif

static inline void start(process *other, alv_machine *machine, const char *role) { start_on(other, machine, 0, role); }

#endif
