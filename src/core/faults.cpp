#include "faults.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace lilliput {

FaultPlan::FaultPlan(const FaultOptions& options)
    : options_(options), fail_at_(options.fail_at.begin(), options.fail_at.end()), random_(options.seed) {}

uint64_t FaultPlan::random() {  // splitmix64
  uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

ssize_t FaultPlan::read(const ReadCall& call) {
  std::unique_lock lock(mutex_);
  calls_.push_back(call);
  const auto failure = fail_at_.find(calls_.size());
  const uint64_t delay = options_.delay_us_max ? random() % (options_.delay_us_max + 1ull) : 0;
  const uint64_t keep = options_.short_reads && random() % 2 ? random() : UINT64_MAX;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !held_ || stopped_; });
  lock.unlock();

  if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  if (failure != fail_at_.end()) {
    errno = failure->second;
    return -1;
  }
  const auto odd = call.offset | call.nbytes | reinterpret_cast<uintptr_t>(call.buffer);
  if (call.direct && options_.alignment && odd % options_.alignment) {
    errno = EINVAL;
    return -1;
  }
  const ssize_t count = Source::read(call);
  if (count <= 1 || keep == UINT64_MAX) return count;
  const auto kept = static_cast<ssize_t>(1 + keep % static_cast<uint64_t>(count - 1));
  std::memset(static_cast<char*>(call.buffer) + kept, 0xa5, static_cast<size_t>(count - kept));
  return kept;
}

size_t FaultPlan::choose(size_t n) {
  if (!options_.reorder) return 0;
  const std::lock_guard lock(mutex_);
  return random() % n;
}

void FaultPlan::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void FaultPlan::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FaultPlan::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

bool FaultPlan::await(size_t n, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, std::chrono::steady_clock::now() + limit, [&] { return calls_.size() >= n; });
}

std::vector<ReadCall> FaultPlan::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

}  // namespace lilliput
