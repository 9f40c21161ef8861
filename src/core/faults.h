// A disk that misbehaves on purpose, for tests: put between a Reader and the system.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "reader.h"

namespace lilliput {

struct FaultOptions {
  uint64_t seed = 0;
  unsigned delay_us_max = 0;                      // every read comes back after 0 to this many microseconds
  bool short_reads = false;                       // half of the reads bring less than asked, and garbage in place of the rest
  bool reorder = false;                           // requests of one priority start in random order
  std::vector<std::pair<uint64_t, int>> fail_at;  // (n, errno): the nth read, from 1, fails
  size_t alignment = 0;                           // a device that needs this alignment of direct reads: anything else is EINVAL
};

class FaultPlan : public Source {
 public:
  explicit FaultPlan(const FaultOptions& options);

  ssize_t read(const ReadCall& call) override;
  size_t choose(size_t n) override;
  size_t alignment(size_t found) override { return options_.alignment ? options_.alignment : found; }
  void stop() override;

  // From hold on reads stop before they reach the system, until release.
  void hold();
  void release();
  // Waits up to `limit` until n reads have been asked for since the start; true when they were.
  bool await(size_t n, std::chrono::milliseconds limit);
  std::vector<ReadCall> calls() const;  // in the order they were made

 private:
  uint64_t random();

  const FaultOptions options_;
  const std::map<uint64_t, int> fail_at_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReadCall> calls_;
  uint64_t random_;
  bool held_ = false, stopped_ = false;
};

}  // namespace lilliput
