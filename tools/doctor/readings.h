// Reads the properties of a host that affect a training run. Plain values, so that tests can draw
// conclusions (findings.h) for any kind of host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero::doctor {

inline constexpr std::int64_t no_limit = -1;

struct Disk {
  std::string path;
  std::string error;  // why the disk could not be read; empty: no error
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
  std::vector<int> cpus;  // to which the rank is bound
};

struct Readings {
  std::string host, kernel;         // the name, and Linux's version
  std::string program;              // "Python 3.11.2 with torch 2.15.0"; may be empty
  std::vector<std::string> loaded;  // files of MPI, CUDA and torch that this process has loaded
  std::vector<RankOnHost> ranks;    // of a job
  // cores: physical cores that the ranks may use, or without ranks this process. granted_cores: the
  // cores that a cgroup's quota allows.
  int cores = 1, granted_cores = 1;
  std::string simd;
  std::int64_t memory_bytes = 0, available_bytes = 0;  // of the host and its cgroups together
  std::int64_t locked_limit = no_limit;                // bytes: RLIMIT_MEMLOCK
  std::int64_t file_limit = no_limit;                  // open files: RLIMIT_NOFILE
  std::int64_t process_limit = no_limit;               // RLIMIT_NPROC
  // The size of /dev/shm and the free space there; 0: there is none.
  std::int64_t shared_bytes = 0, shared_free_bytes = 0;
  std::string huge_pages;     // always, madvise, never
  std::string host_address;   // to which the host's name resolves
  std::string mpi;            // the first line of mpirun --version
  bool remote_shell = false;  // ssh or rsh is installed
  bool root = false, cross_memory = true;
  std::string driver;              // NVIDIA's; empty: none is loaded
  std::optional<int> driver_cuda;  // the newest supported CUDA: 13000 is 13.0
  std::string nccl, cublas;        // paths of loadable libraries; empty: none
  int nccl_version = 0;            // 22703 is 2.27.3; 0: no library
  std::vector<Gpu> gpus;
  std::vector<Disk> disks;
  std::vector<std::string> hung;  // programs that did not answer, and were ended
  std::string temporary_problem;  // of TMPDIR, or /tmp; empty: launchers can use it
};

// directories: for checkpoints and offload. ranks: the ranks of a job on this host. Takes at most a
// second, unless a disk hangs.
Readings read_host(const std::vector<std::string>& directories, std::vector<RankOnHost> ranks = {},
                   std::string program = "");
Disk read_disk(const std::string& directory);

}  // namespace zero::doctor
