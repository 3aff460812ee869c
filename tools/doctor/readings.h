// Readings of one host that matter to a training run. They are plain values, so that tests can draw
// conclusions (findings.h) for hosts that are not at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero::doctor {

inline constexpr std::int64_t no_limit = -1;

struct Disk {
  std::string path;
  std::string error;  // why nothing else could be read; empty: all was
  std::string file_system;
  std::int64_t free_bytes = 0;
  bool direct_io = false;    // O_DIRECT, which offload to NVMe uses
  bool locks_files = false;  // flock(), which checkpoints use against two jobs in one directory
};

struct Gpu {
  std::string uuid, name;
  std::int64_t memory_bytes = 0;
};

struct RankOnHost {
  int rank = 0;
  std::vector<int> cpus;  // that it may run on
};

struct Readings {
  std::string host, kernel;         // of this host
  std::string program;              // that reads, "Python 3.11.2 with torch 2.15.0"; may be empty
  std::vector<std::string> loaded;  // files of MPI, CUDA and torch that this process has loaded
  std::vector<RankOnHost> ranks;    // of a job
  // Physical cores, that the ranks or else this process may use; as many of them as a cgroup's
  // quota pays for.
  int cores = 1, granted_cores = 1;
  std::string simd;
  std::int64_t memory_bytes = 0, available_bytes = 0;  // of the host and its cgroups together
  std::int64_t locked_limit = no_limit;                // bytes: RLIMIT_MEMLOCK
  std::int64_t file_limit = no_limit;                  // open files: RLIMIT_NOFILE
  std::int64_t process_limit = no_limit;               // RLIMIT_NPROC
  std::int64_t shared_bytes = 0;                       // of /dev/shm; 0: there is none
  std::string huge_pages;                              // always, madvise, never
  std::string host_address;                            // the address that the host's name means
  std::string mpi;                                     // the first line of mpirun --version
  bool remote_shell = false;                           // ssh or rsh is installed
  bool root = false, cross_memory = true;
  std::string driver;              // NVIDIA's; empty: none is loaded
  std::optional<int> driver_cuda;  // the newest CUDA that it runs: 13000 is 13.0
  std::string nccl, cublas;        // the file that is loaded, or empty
  std::vector<Gpu> gpus;
  std::vector<Disk> disks;
};

// directories: of checkpoints and of offload. ranks: of a job, on this host. Takes no longer than a
// second, but for disks that hang.
Readings read_host(const std::vector<std::string>& directories, std::vector<RankOnHost> ranks = {},
                   std::string program = "");
Disk read_disk(const std::string& directory);

}  // namespace zero::doctor
