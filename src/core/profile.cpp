#include "profile.h"

#include <array>
#include <chrono>

namespace lilliput::profile {
namespace {

constexpr size_t kKinds = size_t(Kind::count);
constexpr const char* kNames[kKinds] = {"f32",   "bf16",   "k12",         "experts", "kv_b",   "attention", "kda",  "convolution",
                                        "norms", "mixing", "elementwise", "router",  "choice", "forks",     "joins"};

struct Counter {
  std::atomic<uint64_t> calls{0}, nanoseconds{0};
};

std::array<Counter, kKinds> counters;

}  // namespace

std::atomic<bool> detail::on{false};

uint64_t detail::now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count()) | 1;
}

void detail::add(Kind kind, uint64_t since) {
  Counter& counter = counters[size_t(kind)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.nanoseconds.fetch_add(now() - since, std::memory_order_relaxed);
}

void start() {
  for (Counter& counter : counters) {
    counter.calls.store(0, std::memory_order_relaxed);
    counter.nanoseconds.store(0, std::memory_order_relaxed);
  }
  detail::on.store(true, std::memory_order_relaxed);
}

std::vector<Line> stop() {
  detail::on.store(false, std::memory_order_relaxed);
  std::vector<Line> lines;
  for (size_t i = 0; i < kKinds; i++) lines.push_back({kNames[i], counters[i].calls.load(), double(counters[i].nanoseconds.load()) * 1e-9});
  return lines;
}

}  // namespace lilliput::profile
