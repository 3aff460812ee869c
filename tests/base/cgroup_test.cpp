#include "zero/base/cgroup.h"
#include "zero/base/cpus.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/support/temporary_directory.h"

using zero::cgroup_available;
using zero::tests::TemporaryDirectory;

namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// Makes a cgroup of version 2.
void make_group(const TemporaryDirectory& directory, const std::string& name,
                const std::string& limit, const std::string& usage, const std::string& stat = "") {
  std::filesystem::create_directories(directory / name);
  directory.file(name + "/memory.max", limit + "\n");
  directory.file(name + "/memory.current", usage + "\n");
  directory.file(name + "/memory.stat", stat);
}

}  // namespace

TEST_CASE("page cache and slabs that the kernel takes back are free to take") {
  const TemporaryDirectory directory;
  make_group(directory, "cgroup", "1000", "990",
             "anon 100\nfile 850\nshmem 30\ninactive_file 700\nactive_file 120\n"
             "slab_reclaimable 40\nslab_unreclaimable 5\nslab 45\n");
  CHECK(cgroup_available(directory / "cgroup", directory.file("own", "0::/\n")) == 870);
  // Usage and limit may be read at different moments: neither may become negative.
  make_group(directory, "cgroup", "1000", "50", "inactive_file 70\n");
  CHECK(cgroup_available(directory / "cgroup", directory / "own") == 1000);
  make_group(directory, "cgroup", "1000", "1010");
  CHECK(cgroup_available(directory / "cgroup", directory / "own") == 0);
}

TEST_CASE("a group is held by the limits of all groups above it") {
  const TemporaryDirectory directory;
  make_group(directory, "cgroup/job", "1000", "900", "inactive_file 500\n");
  make_group(directory, "cgroup/job/step", "max", "300");
  make_group(directory, "cgroup/job/step/task", "2000", "300");
  const std::string own = directory.file("own", "4:memory:/other\n0::/job/step/task\n");
  CHECK(cgroup_available(directory / "cgroup", own) == 600);
  make_group(directory, "cgroup/job/step", "500", "300");
  CHECK(cgroup_available(directory / "cgroup", own) == 200);
  // The path is the host's, since the container sees its own group at the mount.
  make_group(directory, "cgroup", "100", "30");
  directory.file("own", "0::/docker/0123\n");
  CHECK(cgroup_available(directory / "cgroup", own) == 70);
  CHECK(cgroup_available(directory / "none", directory / "nothing") == no_limit);
}

TEST_CASE("groups of version 1") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "cgroup/memory/job");
  directory.file("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  directory.file("cgroup/memory/memory.usage_in_bytes", "5000\n");
  directory.file("cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  directory.file("cgroup/memory/job/memory.usage_in_bytes", "950\n");
  directory.file("cgroup/memory/job/memory.stat",
                 "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 50\n");
  const std::string own =
      directory.file("own", "5:cpu,cpuacct:/\n4:hugetlb,memory:/job\n0::/elsewhere\n");
  CHECK(cgroup_available(directory / "cgroup", own) == 400);
}

TEST_CASE("CPUs that a quota pays for, of any group above the process") {
  const TemporaryDirectory directory;
  const auto group = [&](const std::string& name, const std::string& limit) {
    std::filesystem::create_directories(directory / name);
    directory.file(name + "/cpu.max", limit + "\n");
  };
  const std::string own = directory.file("own", "0::/job/step\n");
  group("cgroup/job", "250000 100000");
  group("cgroup/job/step", "max 100000");
  CHECK(zero::cpus_of_cgroup(directory / "cgroup", own) == 3);
  group("cgroup/job/step", "50000 100000");
  CHECK(zero::cpus_of_cgroup(directory / "cgroup", own) == 1);
  CHECK(zero::cpus_of_cgroup(directory / "none", own) == 0);
  // Version 1.
  std::filesystem::create_directories(directory / "one/cpu/job");
  directory.file("one/cpu/job/cpu.cfs_quota_us", "200000\n");
  directory.file("one/cpu/job/cpu.cfs_period_us", "100000\n");
  directory.file("own", "4:cpu,cpuacct:/job\n");
  CHECK(zero::cpus_of_cgroup(directory / "one", own) == 2);
}

TEST_CASE("the processes that share a group are counted") {
  const TemporaryDirectory directory;
  make_group(directory, "cgroup/job", "1000", "900");
  make_group(directory, "cgroup/job/a", "500", "100");
  make_group(directory, "cgroup/job/b", "max", "100");
  directory.file("cgroup/job/a/cgroup.procs", "11\n12\n");
  directory.file("cgroup/job/b/cgroup.procs", "13\n");
  const auto rooms = zero::cgroup_rooms(directory / "cgroup", directory.file("own", "0::/job/a\n"));
  REQUIRE(rooms.size() == 2);
  CHECK(rooms[0].available == 400);
  CHECK(rooms[0].processes == 2);
  CHECK(rooms[1].available == 100);
  CHECK(rooms[1].processes == 3);
}
