#include "pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "io.h"
#include "platform.h"
#include "profile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lilliput {
namespace {

// Between two kernels of a layer some microseconds pass: worth waiting for awake, since in a virtual machine it takes thirty to wake a
// thread. Anything longer sleeps in the kernel, so an idle engine costs nothing. While a reader is at work it is a few microseconds only:
// the reader needs the cores.
constexpr int kSpins = 256;
constexpr auto kAwake = std::chrono::microseconds(100);

std::atomic<int> busy{0};
std::atomic<uint64_t> awake{0};

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

// Returns when `value` is no longer `old`.
uint32_t await_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; i++) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause();
  }
  if (busy.load(std::memory_order_relaxed) == 0) awake.fetch_add(1, std::memory_order_relaxed);
  const auto until = std::chrono::steady_clock::now() + kAwake;
  while (busy.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < kSpins / 8; i++) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause();
    }
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

// True on a thread that is inside a range: a nested call then simply runs in place.
thread_local bool inside = false;

// More ranges than threads, so that a thread whose core has other work does fewer of them: with a static split a pass took as long as its
// unluckiest thread. Not so many that claiming one shows beside its work, and none so large that the others wait long for whoever has the
// last one.
constexpr size_t kRangesPerThread = 8, kWorthClaiming = 16384, kLargeRange = 1 << 20;

struct Job {
  void (*body)(void*, size_t, size_t);
  void* context;
  size_t tasks, ranges;

  void run(size_t range) const {
    const size_t begin = tasks * range / ranges, end = tasks * (range + 1) / ranges;
    inside = true;
    try {
      body(context, begin, end);
    } catch (...) {
      inside = false;
      throw;
    }
    inside = false;
  }
};

class Pool {
 public:
  void start(size_t threads) {
    const std::lock_guard turn(turn_);
    resize(threads);
  }

  void run(size_t threads, const Job& work) {
    const std::lock_guard turn(turn_);
    resize(threads);
    job_ = work;
    failure_ = nullptr;
    left_.store(uint32_t(work.ranges), std::memory_order_relaxed);
    claims_.store(uint64_t(work.ranges) << 32, std::memory_order_release);
    wake();
    attempt();
    wait();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void wake() {
    const profile::Timed timed(profile::Kind::forks);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  // For ranges, not for workers: one that gets no core until all is done is not waited for.
  void wait() {
    const profile::Timed timed(profile::Kind::joins);
    for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;) await_change(left_, left);
  }

  void attempt() {
    for (;;) {
      const uint64_t claim = claims_.fetch_add(1, std::memory_order_acq_rel);
      if (uint32_t(claim) >= claim >> 32) return;  // and job_ may be changing by now
      try {
        job_.run(uint32_t(claim));
      } catch (...) {
        const std::lock_guard hold(failing_);
        if (!failure_) failure_ = std::current_exception();
      }
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  void work(uint32_t seen) {
    const FpuGuard plain;
    for (;;) {
      seen = await_change(round_, seen);
      if (stopping_.load(std::memory_order_acquire)) return;
      attempt();
    }
  }

  // Where not all can be started, none is: they would sleep for nothing, and a smaller number can still be asked for.
  void resize(size_t threads) {
    if (workers_.size() + 1 == threads) return;
    end();
    const SignalsBlocked quiet;
    const uint32_t seen = round_.load(std::memory_order_relaxed);
    workers_.reserve(threads - 1);
    try {
      while (workers_.size() + 1 < threads) workers_.emplace_back([this, seen] { work(seen); });
    } catch (const std::system_error& error) {
      const size_t started = workers_.size();
      end();
      throw ThreadError("computing", threads, started + 1, error.code().message());
    }
  }

  void end() {
    stopping_.store(true, std::memory_order_release);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
    stopping_.store(false, std::memory_order_release);
  }

  std::mutex turn_, failing_;
  std::atomic<uint32_t> round_{0};   // its changes wake the workers
  std::atomic<uint64_t> claims_{0};  // ranges of job_ (upper half), and how many have been claimed; beyond that nothing of job_ is read
  std::atomic<uint32_t> left_{0};    // ranges not yet done
  Job job_{};
  std::exception_ptr failure_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;  // not std::jthread: Apple's library still hides it
};

std::atomic<size_t> wanted{1}, worth_splitting{kWorthSplitting};
std::atomic<Pool*> current{nullptr};

// After a fork the child has none of the workers, and the pool may have been copied in the middle of a job: the child drops it
// and starts its own on first use.
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] {
  current.store(nullptr, std::memory_order_relaxed);
  busy.store(0, std::memory_order_relaxed);  // the readers are the parent's
  inside = false;
});

// Never destroyed: at exit the workers sleep and end with the process.
Pool& pool() {
  Pool* found = current.load(std::memory_order_acquire);
  if (found) return *found;
  auto* made = new Pool;
  if (current.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

}  // namespace

Busy::Busy() { busy.fetch_add(1, std::memory_order_relaxed); }
Busy::~Busy() { busy.fetch_sub(1, std::memory_order_relaxed); }

uint64_t waits_awake() { return awake.load(std::memory_order_relaxed); }

void set_threads(size_t n, size_t least_work) {
  if (n < 1 || n > kMostThreads)
    throw std::invalid_argument("threads: needed 1 to " + std::to_string(kMostThreads) + ", found " + std::to_string(n));
  if (n > 1) pool().start(n);  // now, not in the middle of a pass, where it would be too late to choose another number
  wanted.store(n, std::memory_order_relaxed);
  worth_splitting.store(least_work, std::memory_order_relaxed);
}

size_t threads() { return wanted.load(std::memory_order_relaxed); }
size_t least_work() { return worth_splitting.load(std::memory_order_relaxed); }

void detail::parallel(size_t tasks, size_t work, size_t least_tasks, void (*body)(void*, size_t, size_t), void* context) {
  if (tasks == 0) return;
  const FpuGuard plain;
  const size_t parts = threads();
  const size_t least = worth_splitting.load(std::memory_order_relaxed);
  if (parts == 1 || tasks == 1 || inside || work < least) return body(context, 0, tasks);
  const size_t many = std::max(parts * kRangesPerThread, work / kLargeRange);
  const size_t ranges = std::clamp(std::min(least ? work / kWorthClaiming : tasks, tasks / least_tasks), parts, many);
  pool().run(parts, Job{body, context, tasks, std::min(ranges, tasks)});
}

}  // namespace lilliput
