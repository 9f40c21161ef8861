// What the core needs from the operating system: files past the page cache, memory on huge pages, clocks, threads that take no signals.
// The one place that differs between Linux and macOS.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace lilliput {

// A file could not be opened or read; what() says where and why, without the path.
struct ReadError : std::runtime_error {
  ReadError(int code, std::string path, const std::string& message) : std::runtime_error(message), code(code), path(std::move(path)) {}
  int code;  // errno
  std::string path;
};

// Threads could not be started: fewer than were asked for would do the work, but that is for whoever asked to say.
struct ThreadError : std::runtime_error {
  ThreadError(const std::string& what, size_t wanted, size_t started, const std::string& reason);
};

// "EIO (Input/output error)".
std::string describe_errno(int code);

constexpr size_t kDefaultAlignment = 4096;  // right on 512-byte sectors too, and what the page cache works in

struct OpenFile {
  int fd = -1;
  bool direct = false;                   // reads go past the page cache
  size_t alignment = kDefaultAlignment;  // of offsets, lengths and addresses; a power of two, fixed for the life of the file
  std::string why_buffered;              // empty while direct
};

// Opens a regular file of exactly `size` bytes, past the page cache where `direct` asks for it and the file system has it.
// Throws ReadError when it cannot be opened, std::invalid_argument when it is another kind of file or of another size.
OpenFile open_for_reading(const std::string& path, uint64_t size, bool direct);
void close_file(int fd);
uint64_t file_size(int fd);

// May a direct read that failed with this error succeed through the page cache?
bool refuses_direct(int code);
// From now on reads of this descriptor use the page cache. The same inode stays open, whatever became of its path.
void leave_direct(int fd);
// Gives the page cache of [begin, end) back, whole pages, so that buffered reading does not push everything else out of memory.
void drop_behind(int fd, uint64_t begin, uint64_t end);

// Private anonymous zeroed memory at a multiple of kHugePage; nullptr when there is none. `huge` says whether the kernel took the advice.
constexpr size_t kHugePage = size_t{2} << 20;
void* map_memory(size_t nbytes, bool& huge);
void unmap_memory(void* memory, size_t nbytes);
void forget_memory(void* memory, size_t nbytes);  // whole pages of it go back to the system; the contents are lost
size_t page_bytes();

double thread_cpu_seconds();
void name_this_thread(const char* name);  // at most 15 characters
long this_process();

// Threads started during its life take no signals: Ctrl-C interrupts the thread that waits for it, never a reader or a worker, who would
// leave that thread asleep.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace lilliput
