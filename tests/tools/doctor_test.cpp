// Conclusions of `zero doctor` from recorded data of hosts that are not available here.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/doctor/findings.h"
#include "tools/doctor/report.h"

using namespace zero::doctor;

namespace {

Readings good_host() {
  Readings host;
  host.host = "node1";
  host.host_address = "10.0.0.1";
  host.cores = host.granted_cores = 8;
  host.simd = "avx512";
  host.memory_bytes = host.available_bytes = std::int64_t{64} << 30;
  host.shared_bytes = std::int64_t{32} << 30;
  host.mpi = "mpirun (Open MPI) 4.1.4";
  host.remote_shell = true;
  return host;
}

// Returns the bad finding whose text or advice contains this part; null: none.
const Finding* trouble(const std::vector<Finding>& findings, const std::string& part) {
  const auto found = std::ranges::find_if(findings, [&](const Finding& finding) {
    return finding.level != Level::fine &&
           (finding.text + finding.advice).find(part) != std::string::npos;
  });
  return found == findings.end() ? nullptr : &*found;
}

std::size_t troubles(const std::vector<Finding>& findings) {
  return static_cast<std::size_t>(std::ranges::count_if(
      findings, [](const Finding& finding) { return finding.level != Level::fine; }));
}

}  // namespace

TEST_CASE("a good host has no trouble, and every trouble comes with advice") {
  CHECK(troubles(findings_of(good_host())) == 0);
  const auto changed = [](auto change, const std::string& part) {
    Readings host = good_host();
    change(host);
    const std::vector<Finding> findings = findings_of(host);
    CAPTURE(part);
    const Finding* found = trouble(findings, part);
    REQUIRE(found != nullptr);
    CHECK(!found->advice.empty());
    CHECK(troubles(findings) == 1);
    return found->level;
  };
  CHECK(changed([](Readings& h) { h.shared_bytes = 64 << 20; }, "/dev/shm: 64.00 MiB") ==
        Level::failing);
  CHECK(changed([](Readings& h) { h.locked_limit = 65536; }, "64.00 KiB") == Level::slow);
  CHECK(changed([](Readings& h) { h.granted_cores = 2; }, "at most 2 ranks") == Level::slow);
  CHECK(changed([](Readings& h) { h.file_limit = 1024; }, "1024") == Level::slow);
  CHECK(changed([](Readings& h) { h.process_limit = 100; }, "100") == Level::failing);
  CHECK(changed([](Readings& h) { h.host_address = "127.0.1.1"; }, "127.0.1.1") == Level::slow);
  CHECK(changed([](Readings& h) { h.host_address.clear(); }, "no address") == Level::slow);
  CHECK(changed([](Readings& h) { h.huge_pages = "never"; }, "huge pages") == Level::slow);
  CHECK(changed([](Readings& h) { h.mpi.clear(); }, "mpirun") == Level::slow);
  CHECK(changed([](Readings& h) { h.simd = "scalar"; }, "vector") == Level::slow);
  CHECK(changed(
            [](Readings& h) {
              h.disks = {{"/d", "", "nfs", std::int64_t{1} << 40, true, false}};
            },
            "flock") == Level::failing);
  CHECK(changed(
            [](Readings& h) {
              h.disks = {{"/d", "", "tmpfs", std::int64_t{1} << 40, false, true}};
            },
            "O_DIRECT") == Level::slow);
  CHECK(changed(
            [](Readings& h) {
              h.disks = {{"/d", "No such file or directory", "", 0, false, false}};
            },
            "No such file") == Level::failing);
}

TEST_CASE("a GPU host needs a driver that answers, NCCL and memory that can be locked") {
  Readings host = good_host();
  host.gpus = {{"GPU-1", "H100", std::int64_t{80} << 30}};
  host.driver = "580.1";
  CHECK(trouble(findings_of(host), "libcuda.so.1") != nullptr);
  host.driver_cuda = 11080;
  CHECK(trouble(findings_of(host), "CUDA 11.8") != nullptr);
  host.driver_cuda = 13000;
  CHECK(trouble(findings_of(host), "libnccl.so.2") != nullptr);
  host.nccl = "/lib/libnccl.so.2";
  CHECK(troubles(findings_of(host)) == 0);
  host.locked_limit = 8 << 20;
  CHECK(trouble(findings_of(host), "memlock")->level == Level::failing);
}

TEST_CASE(
    "links that are slower than their kind, or than a network, and clocks that differ are named") {
  const Link good{0, 2, "hierarchical", 20e-6, 1e9, 0.001};
  Links links{"hierarchical", {"a", "a", "b", "c"}, {good, good, good}};
  links.links[1].second = 3;
  links.links[2] = {2, 3, "hierarchical", 20e-6, 0.9e9, -0.002};
  CHECK(troubles(findings_of(links)) == 0);
  links.links[2].bytes_per_second = 0.3e9;
  CHECK(trouble(findings_of(links), "b - c")->advice.find("the fastest of its kind") !=
        std::string::npos);
  links.links.resize(1);
  links.links[0].bytes_per_second = 12e6;
  CHECK(trouble(findings_of(links), "gigabit") != nullptr);
  links.links[0].clock_offset_seconds = 3;
  CHECK(trouble(findings_of(links), "off by 3.0 s") != nullptr);
}

TEST_CASE("links between hosts that are much slower than inside: stages may gain") {
  Links links{"hierarchical",
              {"a", "a", "b", "b"},
              {{0, 1, "shm", 1e-6, 4e9, 0}, {0, 2, "tcp", 20e-6, 2e9, 0}}};
  const auto advises = [&] {
    return std::ranges::any_of(findings_of(links), [](const Finding& finding) {
      return finding.text.find("zero plan --between-nodes 0.466 --pipeline-stages 1,2") !=
             std::string::npos;
    });
  };
  CHECK(!advises());
  links.links[1].bytes_per_second = 0.5e9;
  CHECK(advises());
}

TEST_CASE("ranks that share cores are named, as are those that could have their own") {
  Readings host = good_host();
  host.ranks = {{0, {0, 1}}, {1, {0, 1}}};
  CHECK(troubles(findings_of(host)) == 0);
  host.ranks.push_back({2, {0, 1}});
  CHECK(trouble(findings_of(host), "ranks 0, 1, 2 on CPUs 0, 1")->advice.find("at most one rank") !=
        std::string::npos);
  host.ranks = {{0, {0}}, {1, {0}}, {2, {2}}, {3, {3, 4}}};
  CHECK(troubles(findings_of(host)) == 1);
  CHECK(trouble(findings_of(host), "ranks 0, 1 on CPU 0")->advice.find("bind each rank") !=
        std::string::npos);
}

TEST_CASE("a report has its hosts, its links and the same sentences in both forms") {
  Readings other = good_host();
  other.host = "b";
  other.locked_limit = 65536;
  const std::string alone = report_of({host_report(good_host())}, {});
  CHECK(
      text_of(alone).find("0 of these will make some runs fail (!!), 0 will slow some down (!)") !=
      std::string::npos);
  const Links links{"mpi", {"node1", "b"}, {{0, 1, "mpi", 1e-6, 2e9, -4}}};
  const std::string both = report_of({host_report(good_host()), host_report(other)}, links);
  const auto json = nlohmann::json::parse(indented(both));
  CHECK(json.at("hosts").at(1).at("locked_limit_bytes") == 65536);
  CHECK(json.at("hosts").at(0).at("locked_limit_bytes").is_null());
  CHECK(json.at("links").at(0).at("hosts") == nlohmann::json{"node1", "b"});
  CHECK(json.at("links").at(0).at("bytes_per_second") == 2e9);
  const std::string text = text_of(both);
  for (const auto& finding : json.at("hosts").at(1).at("findings"))
    CHECK(text.find(finding.at("text").get<std::string>()) != std::string::npos);
  for (const char* part : {"-- node1\n", "-- b\n", "node1 - b: the second clock is off by -4.0 s",
                           "2 will slow some down"})
    CHECK(text.find(part) != std::string::npos);
  CHECK_THROWS_WITH(text_of("{}"), "not a report of zero doctor: {}");
  CHECK_THROWS_WITH(text_of("no"), "not a report of zero doctor: no");
}
