/* A pool whose workers spin briefly for the next job, then sleep.
 *
 * A job's grains are cut into one share for each thread, so that each reads memory in a stream of its own; whoever has done his
 * share helps with the others'. One word for each share, the ticket, hands its grains out: the number of the job, the share's count of
 * grains, and the next grain. Whoever counts it up and finds a grain left holds the job open until that grain is done; whoever finds
 * none anywhere leaves. So a job never waits for a worker that has not begun, and a busy machine costs speed, not stalls. Which
 * thread does which grain never changes a result.
 */
#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

#ifdef _WIN32
#include <windows.h>
typedef HANDLE thread_t;
typedef CRITICAL_SECTION mutex_t;
typedef CONDITION_VARIABLE condition_t;
#define mutex_init(m) InitializeCriticalSection(m)
#define mutex_free(m) DeleteCriticalSection(m)
#define mutex_lock(m) EnterCriticalSection(m)
#define mutex_unlock(m) LeaveCriticalSection(m)
#define condition_init(c) InitializeConditionVariable(c)
#define condition_free(c) ((void)0)
#define condition_wait(c, m) SleepConditionVariableCS(c, m, INFINITE)
#define condition_all(c) WakeAllConditionVariable(c)
#define YIELD() SwitchToThread()
#else
#include <pthread.h>
#include <sched.h>
typedef pthread_t thread_t;
typedef pthread_mutex_t mutex_t;
typedef pthread_cond_t condition_t;
#define mutex_init(m) pthread_mutex_init(m, NULL)
#define mutex_free(m) pthread_mutex_destroy(m)
#define mutex_lock(m) pthread_mutex_lock(m)
#define mutex_unlock(m) pthread_mutex_unlock(m)
#define condition_init(c) pthread_cond_init(c, NULL)
#define condition_free(c) pthread_cond_destroy(c)
#define condition_wait(c, m) pthread_cond_wait(c, m)
#define condition_all(c) pthread_cond_broadcast(c)
#define YIELD() sched_yield()
#endif

/* The processor's floating-point controls. Another library may have set the calling thread to flush subnormals, and new threads inherit
 * that; CONTRACT.md asks for the default. */
#if defined(__x86_64__)
enum { DEFAULT_CONTROLS = 0x1f80 }; /* to nearest even, nothing flushed, no interrupts */
static uint64_t controls(void) { return __builtin_ia32_stmxcsr(); }
static void set_controls(uint64_t bits) { __builtin_ia32_ldmxcsr((uint32_t)bits); }
#elif defined(__aarch64__)
enum { DEFAULT_CONTROLS = 0 };
static uint64_t controls(void) {
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
static void set_controls(uint64_t bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
#else
enum { DEFAULT_CONTROLS = 0 };
static uint64_t controls(void) { return DEFAULT_CONTROLS; }
static void set_controls(uint64_t bits) { (void)bits; }
#endif

enum { SPINS = 4000, SLOTS = 8, MAX_THREADS = 256 };

/* The ticket: number above bit 40, grains in 20 bits, next in 20 bits. A thread overshoots `next` at most twice a job: once when it
 * comes late from the job before, once when it comes for this one. */
enum { FIELD = 20, MAX_GRAINS = (1 << FIELD) - 2 * MAX_THREADS };

typedef struct {
    ms_pool *pool;
    int index;
} worker;

typedef struct {
    _Alignas(64) _Atomic uint64_t ticket;
    int64_t first; /* grain */
} share;

struct ms_pool {
    pool_task task;
    void *job;
    int64_t items, grain;
    share shares[MAX_THREADS];
    _Alignas(64) _Atomic int64_t done; /* grains */
    _Alignas(64) _Atomic int sleeping;
    _Atomic int closing;
    int threads;
    mutex_t mutex;
    condition_t wake;
    thread_t handles[MAX_THREADS];
    worker workers[MAX_THREADS];
    void *scratch[SLOTS];
    int64_t scratch_bytes[SLOTS];
};

static uint64_t number_of(uint64_t ticket) { return ticket >> 2 * FIELD; }

/* Do grains of one share until none is left. */
static void take_grains(ms_pool *pool, share *from, int thread) {
    const uint64_t field = ((uint64_t)1 << FIELD) - 1;
    for (;;) {
        const uint64_t seen = atomic_load_explicit(&from->ticket, memory_order_relaxed);
        if ((seen & field) >= (seen >> FIELD & field)) return;
        const uint64_t ticket = atomic_fetch_add_explicit(&from->ticket, 1, memory_order_acq_rel);
        const int64_t grain = (int64_t)(ticket & field);
        if (grain >= (int64_t)(ticket >> FIELD & field)) return;
        const int64_t first = (from->first + grain) * pool->grain;
        pool->task(pool->job, first, first + pool->grain < pool->items ? first + pool->grain : pool->items, thread);
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
    }
}

/* One's own share first, then the others'. */
static void take_shares(ms_pool *pool, int thread) {
    for (int i = 0; i < pool->threads; i++) take_grains(pool, &pool->shares[(thread + i) % pool->threads], thread);
}

/* The number of the newest job: share 0 is announced last. */
static uint64_t newest(ms_pool *pool, memory_order order) { return number_of(atomic_load_explicit(&pool->shares[0].ticket, order)); }

static void await_job(ms_pool *pool, uint64_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (newest(pool, memory_order_acquire) != seen) return;
        PAUSE();
    }
    mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleeping, 1);
    while (newest(pool, memory_order_seq_cst) == seen) condition_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    mutex_unlock(&pool->mutex);
}

static void work(worker *self) {
    ms_pool *pool = self->pool;
    uint64_t seen = 0;
    set_controls(DEFAULT_CONTROLS);
    while (!atomic_load(&pool->closing)) {
        await_job(pool, seen);
        seen = newest(pool, memory_order_acquire);
        take_shares(pool, self->index);
    }
}

#ifdef _WIN32
static DWORD WINAPI entry(void *self) {
    work(self);
    return 0;
}
static int start(thread_t *handle, worker *self) { return (*handle = CreateThread(NULL, 0, entry, self, 0, NULL)) != NULL; }
static void join(thread_t handle) {
    WaitForSingleObject(handle, INFINITE);
    CloseHandle(handle);
}
#else
static void *entry(void *self) {
    work(self);
    return NULL;
}
static int start(thread_t *handle, worker *self) { return pthread_create(handle, NULL, entry, self) == 0; }
static void join(thread_t handle) { pthread_join(handle, NULL); }
#endif

static void announce(ms_pool *pool, int64_t grains) {
    const uint64_t number = newest(pool, memory_order_relaxed) + 1;
    for (int i = pool->threads - 1; i >= 0; i--) {
        const int64_t first = grains * i / pool->threads, last = grains * (i + 1) / pool->threads;
        pool->shares[i].first = first;
        atomic_store(&pool->shares[i].ticket, number << 2 * FIELD | (uint64_t)(last - first) << FIELD);
    }
    if (atomic_load(&pool->sleeping)) {
        mutex_lock(&pool->mutex);
        condition_all(&pool->wake);
        mutex_unlock(&pool->mutex);
    }
}

static void run_job(ms_pool *pool, pool_task task, void *job, int64_t items, int64_t grain) {
    if (items <= 0) return;
    if (pool->threads == 1 || items <= grain) {
        task(job, 0, items, 0);
        return;
    }
    if (items / grain >= MAX_GRAINS) grain = items / MAX_GRAINS + 1;
    const int64_t grains = (items + grain - 1) / grain;
    pool->task = task;
    pool->job = job;
    pool->items = items;
    pool->grain = grain;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    announce(pool, grains);
    take_shares(pool, 0);
    for (int i = 0; atomic_load_explicit(&pool->done, memory_order_acquire) < grains; i++) {
        if (i < SPINS)
            PAUSE();
        else
            YIELD(); /* a worker has lost its core in the middle of a grain */
    }
}

void pool_run(ms_pool *pool, pool_task task, void *job, int64_t items, int64_t grain) {
    const uint64_t before = controls();
    set_controls(DEFAULT_CONTROLS);
    run_job(pool, task, job, items, grain);
    set_controls(before);
}

int pool_threads(const ms_pool *pool) { return pool->threads; }

void *pool_scratch(ms_pool *pool, int slot, int64_t bytes) {
    if (pool->scratch_bytes[slot] < bytes) {
        free(pool->scratch[slot]);
        pool->scratch_bytes[slot] = 0;
        pool->scratch[slot] = malloc((size_t)bytes + 64);
        if (!pool->scratch[slot]) return NULL;
        pool->scratch_bytes[slot] = bytes;
    }
    return (void *)(((uintptr_t)pool->scratch[slot] + 63) & ~(uintptr_t)63);
}

int64_t ms_pool_bytes(const ms_pool *pool) {
    int64_t bytes = 0;
    for (int i = 0; i < SLOTS; i++) bytes += pool->scratch_bytes[i];
    return bytes;
}

ms_pool *ms_pool_new(int threads) {
    if (threads < 1 || threads > MAX_THREADS) return NULL;
    void *memory = calloc(1, sizeof(ms_pool) + 64);
    if (!memory) return NULL;
    ms_pool *pool = (ms_pool *)(((uintptr_t)memory + 64) & ~(uintptr_t)63);
    ((void **)pool)[-1] = memory;
    mutex_init(&pool->mutex);
    condition_init(&pool->wake);
    pool->threads = 1;
    for (int i = 1; i < threads; i++) {
        pool->workers[i] = (worker){pool, i};
        if (!start(&pool->handles[i], &pool->workers[i])) {
            ms_pool_free(pool);
            return NULL;
        }
        pool->threads = i + 1;
    }
    return pool;
}

void ms_pool_free(ms_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->closing, 1);
    announce(pool, 0);
    for (int i = 1; i < pool->threads; i++) join(pool->handles[i]);
    condition_free(&pool->wake);
    mutex_free(&pool->mutex);
    for (int i = 0; i < SLOTS; i++) free(pool->scratch[i]);
    free(((void **)pool)[-1]);
}
