#include "tools/doctor/readings.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "tools/zero/machine.h"
#include "tools/zero/process.h"
#include "tools/zero/temporary_directory.h"
#include "zero/base/cgroup.h"
#include "zero/base/simd.h"
#include "zero/base/text.h"

namespace zero::doctor {
namespace {

std::int64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return no_limit;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// Returns a row of /proc/meminfo in bytes; the file has KiB.
std::int64_t memory_row(const std::string& name) {
  std::ifstream rows("/proc/meminfo");
  for (std::string line; std::getline(rows, line);)
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  return 0;
}

// Returns the value in brackets: "madvise" of "always [madvise] never".
std::string chosen_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const auto begin = line.find('['), end = line.find(']');
  return end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

std::string address_of(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return "";
  std::array<char, 64> text{};
  getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0,
              NI_NUMERICHOST);
  freeaddrinfo(found);
  return text.data();
}

std::string file_system_of(const std::string& path) {
  static const std::map<long, const char*> names = {
      {0xEF53, "ext4"},     {0x58465342, "xfs"},    {0x9123683E, "btrfs"},   {0x01021994, "tmpfs"},
      {0x6969, "nfs"},      {0x0BD00BD0, "lustre"}, {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},
      {0x65735546, "fuse"}, {0x47504653, "gpfs"},   {0x19830326, "beegfs"},  {0x00C36400, "ceph"}};
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return "";
  const auto found = names.find(static_cast<long>(status.f_type));
  return found == names.end() ? "unknown" : found->second;
}

struct LoadedLibrary {
  std::string path;  // empty: none of the names can be loaded
  void* symbol = nullptr;
};

// Loads the first of these libraries that can be loaded.
LoadedLibrary load_first(std::initializer_list<const char*> names, const char* symbol) {
  for (const char* name : names) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Dl_info info{};
    void* address = dlsym(library, symbol);
    const bool known = address != nullptr && dladdr(address, &info) != 0;
    return {known ? info.dli_fname : name, address};
  }
  return {};
}

void read_nccl(Readings& readings) {
  const LoadedLibrary nccl = load_first({"libnccl.so.2", "libnccl.so"}, "ncclGetVersion");
  readings.nccl = nccl.path;
  using GetVersion = int (*)(int*);
  if (nccl.symbol != nullptr) reinterpret_cast<GetVersion>(nccl.symbol)(&readings.nccl_version);
}

// A callback of dl_iterate_phdr(): adds libraries of interest to the vector `paths`.
int add_loaded(dl_phdr_info* info, std::size_t, void* paths) {
  const std::string path = info->dlpi_name, name = path.substr(path.rfind('/') + 1);
  for (const char* known : {"libmpi.so", "libnccl.so", "libcuda.so", "libcudart.so",
                            "libcublasLt.so", "libcudnn.so", "libtorch_cpu.so"})
    if (name.starts_with(known)) static_cast<std::vector<std::string>*>(paths)->push_back(path);
  return 0;
}

// Returns the CPUs that the ranks may use, or without ranks this process.
std::vector<int> cpus_of(const std::vector<RankOnHost>& ranks) {
  std::set<int> cpus;
  for (const RankOnHost& rank : ranks) cpus.insert(rank.cpus.begin(), rank.cpus.end());
  return cpus.empty() ? allowed_cpus() : std::vector<int>(cpus.begin(), cpus.end());
}

void read_gpus(Readings& readings) {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  for (const std::string& word : words_of(line))
    if (readings.driver.empty() && word.size() > 3 && std::isdigit(word[0]) != 0 &&
        word.find('.') != std::string::npos)
      readings.driver = word;
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    using DriverVersion = int (*)(int*);
    int version = 0;
    const auto get = reinterpret_cast<DriverVersion>(dlsym(driver, "cuDriverGetVersion"));
    if (get != nullptr && get(&version) == 0 && version > 0) readings.driver_cuda = version;
  }
  const std::string tool_path = tool::find_in_path("nvidia-smi");
  if (tool_path.empty()) return;
  const tool::Output output = tool::capture(
      {tool_path, "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"});
  if (output.timed_out) readings.hung.push_back(tool_path);
  std::istringstream rows(output.text);
  for (std::string row; output.exit_code == 0 && std::getline(rows, row);) {
    const auto first = row.find(','), last = row.rfind(',');
    if (first == last) continue;
    readings.gpus.push_back({row.substr(0, first),
                             std::string(trimmed(row.substr(first + 1, last - first - 1))),
                             std::atoll(row.c_str() + last + 1) << 20});
  }
}

std::string first_line_of(const std::string& program, Readings& readings) {
  const std::string path = tool::find_in_path(program);
  if (path.empty()) return "";
  const tool::Output output = tool::capture({path, "--version"});
  if (output.timed_out) readings.hung.push_back(path + " --version");
  return output.timed_out ? path : output.text.substr(0, output.text.find('\n'));
}

}  // namespace

Disk read_disk(const std::string& directory) {
  Disk disk;
  disk.path = directory;
  struct statvfs space {};
  if (statvfs(directory.c_str(), &space) != 0) {
    disk.error = std::strerror(errno);
    return disk;
  }
  disk.file_system = file_system_of(directory);
  disk.free_bytes =
      static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
  std::string name = directory + "/.zero_doctor_XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) {
    disk.error = std::strerror(errno);
    return disk;
  }
  disk.locks_files = flock(file, LOCK_EX | LOCK_NB) == 0;
  const int direct = open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  disk.direct_io = direct >= 0;
  if (direct >= 0) close(direct);
  close(file);
  unlink(name.c_str());
  return disk;
}

Readings read_host(const std::vector<std::string>& directories, std::vector<RankOnHost> ranks,
                   std::string program) {
  Readings readings;
  readings.program = std::move(program);
  readings.ranks = std::move(ranks);
  dl_iterate_phdr(add_loaded, &readings.loaded);
  readings.host = host_name();
  utsname system{};
  if (uname(&system) == 0) readings.kernel = std::string(system.sysname) + " " + system.release;
  const tool::MachineFacts machine = tool::read_machine(cpus_of(readings.ranks));
  readings.cores = machine.cores;
  readings.granted_cores = machine.granted_cores;
  readings.root = machine.root;
  readings.cross_memory = machine.cross_memory;
  readings.remote_shell = machine.remote_shell;
  readings.simd = name_of(simd_level());
  readings.memory_bytes = memory_row("MemTotal");
  readings.available_bytes = std::min(memory_row("MemAvailable"), cgroup_available());
  readings.locked_limit = limit_of(RLIMIT_MEMLOCK);
  readings.file_limit = limit_of(RLIMIT_NOFILE);
  readings.process_limit = limit_of(RLIMIT_NPROC);
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) == 0) {
    const auto block = static_cast<std::int64_t>(shared.f_frsize);
    readings.shared_bytes = static_cast<std::int64_t>(shared.f_blocks) * block;
    readings.shared_free_bytes = static_cast<std::int64_t>(shared.f_bavail) * block;
  }
  readings.huge_pages = chosen_huge_pages();
  readings.host_address = address_of(readings.host);
  readings.mpi = first_line_of("mpirun", readings);
  read_gpus(readings);
  read_nccl(readings);
  readings.cublas = load_first({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtCreate").path;
  for (const std::string& directory : directories) readings.disks.push_back(read_disk(directory));
  readings.temporary_problem = tool::problem_of_temporary_directory();
  return readings;
}

}  // namespace zero::doctor
