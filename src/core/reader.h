// Reads extents of files into arenas with a few threads, past the page cache, in two priorities.
//
// What was tried (a virtual disk of 2.5-3 GB/s; 4 MB requests unless said otherwise):
//  - io_uring, plain and with registered buffers: no faster than a few threads of pread from 1 MB up; it saves 0.005 CPU s/GB where the
//    threads cost 0.01, and many containers forbid it. Threads always work.
//  - Buffered reads: a third of the speed at 50 times the CPU (0.4 s/GB: at 7 GB/s, three whole cores). Mapped files: the same, and
//    their faults stop the arithmetic. Buffered reading is kept only for what refuses direct reads.
//  - Direct reads into 4 KiB pages: 1 GB/s; into 2 MiB pages 2.2-3.3. Hence Arena.
//  - Requests of 128 KB: half the speed. From 1 MB on this disk is flat; a real NVMe wants 8-16 MB in flight, which four threads of 4 MB
//  are.
//  - A queue per file or per caller: no gain. What matters is that an expert overtakes read-ahead, and waits for one request at most.
//  - Turning 4096-byte alignment into 512 by trial where the system does not state it: saves 0.1 % of the bytes, and some file systems
//    take the read and then buffer it. What is stated is used, otherwise 4096, which is right wherever 512 is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io.h"

namespace lilliput {

// One system call to be made. `direct` is what the descriptor was set to when the call was decided on.
struct ReadCall {
  int file, fd;
  bool direct;
  void* buffer;
  size_t nbytes;
  uint64_t offset;
};

// What the reader asks of the system, so that tests can stand between the two. Called by all reader threads at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual ssize_t read(const ReadCall& call);  // as pread: a count, 0 at the end of the file, or -1 and errno
  virtual size_t choose(size_t) { return 0; }  // which of the n oldest requests of a priority goes next
  virtual size_t alignment(size_t found) { return found; }
  virtual void stop() {}  // the reader closes: let go of every call
};

// The range [begin, begin + length) that is read for a range asked for; the latter starts at `offset - begin` in it. `length` may pass the
// end of the file by less than one alignment: those bytes of the destination are undefined.
struct Extent {
  uint64_t begin, length;
};

struct ReaderOptions {
  unsigned threads = 4;
  size_t request_bytes = size_t{4} << 20;  // at most, per system call
  bool direct = true;
};

struct ReaderStats {
  uint64_t bytes_asked = 0;  // of all tickets
  uint64_t bytes_read = 0;   // delivered by the system: alignment margins, and blocks read again after short reads, included
  uint64_t requests = 0;
  double waited_s = 0;         // callers standing in wait
  double busy_s = 0;           // wall time with at least one read in flight
  double cpu_s = 0;            // of the reader's threads
  unsigned in_flight_max = 0;  // reads at once
  uint64_t queued = 0;         // requests that wait for a thread now
  unsigned buffered_files = 0;
};

using Ticket = uint64_t;

// Thread-safe. In a forked child, which has none of the threads, every call throws std::runtime_error.
class Reader {
 public:
  explicit Reader(const ReaderOptions& options, std::shared_ptr<Source> source = nullptr);  // throws std::invalid_argument
  ~Reader();

  // Opens a file of `size` bytes and gives its number. Throws as open_for_reading.
  int add(const std::string& path, uint64_t size);
  bool direct(int file) const;
  size_t alignment(int file) const;
  std::vector<std::pair<std::string, std::string>> buffered() const;  // (path, why) of files read through the page cache

  // Never changes for a file, also when its reads turn out to need the page cache. Throws std::invalid_argument beyond the file's end.
  Extent extent(int file, uint64_t offset, uint64_t nbytes) const;

  // Starts reading extent(file, offset, nbytes) to `address`, in requests that run in parallel. All urgent requests go before all others,
  // each kind in the order of submission. `address` must be aligned, and `length` bytes from it inside one living Arena; they are the
  // reader's until wait or cancel has returned, and the arena stays alive as long.
  Ticket submit(int file, uint64_t offset, uint64_t nbytes, void* address, bool urgent);

  bool ready(Ticket ticket) const;  // take would neither wait nor find it unfinished
  // Waits up to `limit`; true when the ticket is ready. A ticket cancelled meanwhile counts as ready, and is unknown to take.
  bool wait(Ticket ticket, std::chrono::milliseconds limit);
  // Frees a ready ticket: the seconds that callers waited for it. Throws the first ReadError of its requests, or std::runtime_error when
  // the reader was closed before all of it was read.
  double take(Ticket ticket);
  // Drops what has not started, waits for what has, and frees the ticket.
  void cancel(Ticket ticket);
  // All, urgent or not, that have neither been taken nor cancelled.
  std::vector<Ticket> tickets(bool urgent) const;
  // Drops what has not started, waits for what has, ends the threads, closes the files.
  void close();

  ReaderStats stats() const;

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
  long process_;
};

}  // namespace lilliput
