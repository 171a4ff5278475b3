/* A pool whose workers spin briefly for the next job, then sleep.
 *
 * A job is announced by counting `number` up and ends when every worker has counted `busy` down, so no worker ever sees a
 * half-written job. Grains are taken from `next` as threads come free; which thread does which grain never changes a result.
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

enum { SPINS = 4000, SLOTS = 4, MAX_THREADS = 256 };

typedef struct {
    ms_pool *pool;
    int index;
} worker;

struct ms_pool {
    pool_task task;
    void *job;
    int64_t items, grain;
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic uint32_t number;
    _Alignas(64) _Atomic int busy;        /* workers that have not finished the job */
    _Atomic int closing, sleeping;
    int threads;
    mutex_t mutex;
    condition_t wake;
    thread_t handles[MAX_THREADS];
    worker workers[MAX_THREADS];
    void *scratch[SLOTS];
    int64_t scratch_bytes[SLOTS];
};

static void take_grains(ms_pool *pool, int thread) {
    for (;;) {
        int64_t first = atomic_fetch_add_explicit(&pool->next, pool->grain, memory_order_relaxed);
        if (first >= pool->items) return;
        int64_t last = first + pool->grain < pool->items ? first + pool->grain : pool->items;
        pool->task(pool->job, first, last, thread);
    }
}

static void await_news(ms_pool *pool, uint32_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->number, memory_order_acquire) != seen) return;
        PAUSE();
    }
    mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleeping, 1);
    while (atomic_load(&pool->number) == seen) condition_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    mutex_unlock(&pool->mutex);
}

static void work(worker *self) {
    ms_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        await_news(pool, seen);
        seen = atomic_load_explicit(&pool->number, memory_order_acquire);
        if (atomic_load(&pool->closing)) return;
        take_grains(pool, self->index);
        atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_release);
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

static void announce(ms_pool *pool) {
    atomic_fetch_add(&pool->number, 1);
    if (atomic_load(&pool->sleeping)) {
        mutex_lock(&pool->mutex);
        condition_all(&pool->wake);
        mutex_unlock(&pool->mutex);
    }
}

void pool_run(ms_pool *pool, pool_task task, void *job, int64_t items, int64_t grain) {
    if (items <= 0) return;
    if (pool->threads == 1 || items <= grain) {
        task(job, 0, items, 0);
        return;
    }
    pool->task = task;
    pool->job = job;
    pool->items = items;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->busy, pool->threads - 1);
    announce(pool);
    take_grains(pool, 0);
    for (int i = 0; atomic_load_explicit(&pool->busy, memory_order_acquire); i++) {
        if (i < SPINS)
            PAUSE();
        else
            YIELD(); /* a worker has no core of its own just now */
    }
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
    announce(pool);
    for (int i = 1; i < pool->threads; i++) join(pool->handles[i]);
    condition_free(&pool->wake);
    mutex_free(&pool->mutex);
    for (int i = 0; i < SLOTS; i++) free(pool->scratch[i]);
    free(((void **)pool)[-1]);
}
