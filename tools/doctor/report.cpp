#include "tools/doctor/report.h"

#include <nlohmann/json.hpp>

#include "tools/doctor/findings.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::doctor {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings)
    json.push_back({{"topic", finding.topic},
                    {"text", finding.text},
                    {"level", name_of(finding.level)},
                    {"advice", finding.advice}});
  return json;
}

Json limit(std::int64_t value) {
  return value == no_limit ? Json() : Json(value);
}

Json json_of(const Disk& disk) {
  if (!disk.error.empty()) return {{"path", disk.path}, {"error", disk.error}};
  return {{"path", disk.path},
          {"file_system", disk.file_system},
          {"free_bytes", disk.free_bytes},
          {"direct_io", disk.direct_io},
          {"locks_files", disk.locks_files}};
}

Json json_of(const Links& links) {
  Json json = Json::array();
  const auto host = [&](int rank) { return links.hosts.at(static_cast<std::size_t>(rank)); };
  for (const Link& link : links.links)
    json.push_back({{"hosts", {host(link.first), host(link.second)}},
                    {"ranks", {link.first, link.second}},
                    {"transport", link.transport},
                    {"latency_seconds", link.latency_seconds},
                    {"bytes_per_second", link.bytes_per_second},
                    {"clock_offset_seconds", link.clock_offset_seconds}});
  return json;
}

Json parsed(const std::string& report) {
  try {
    return Json::parse(report);
  } catch (const Json::exception&) {
    throw ConfigError("not a report of zero doctor: " + printable(report));
  }
}

struct Counts {
  int slow = 0, failing = 0;
};

std::string text_of_findings(const Json& findings, Counts& counts) {
  std::string text, topic;
  for (const Json& finding : findings) {
    const std::string own = finding.at("topic"), level = finding.at("level");
    std::string margin = own == topic ? "" : own;
    margin.resize(10, ' ');
    text += margin + finding.at("text").get<std::string>() + "\n";
    topic = own;
    if (level == name_of(Level::fine)) continue;
    const bool fails = level == name_of(Level::failing);
    text += std::string(10, ' ') + (fails ? "!! " : "!  ") +
            finding.at("advice").get<std::string>() + "\n";
    ++(fails ? counts.failing : counts.slow);
  }
  return text;
}

}  // namespace

std::string host_report(const Readings& host) {
  Json ranks = Json::array(), gpus = Json::array(), disks = Json::array();
  for (const RankOnHost& rank : host.ranks)
    ranks.push_back({{"rank", rank.rank}, {"cpus", rank.cpus}});
  for (const Gpu& gpu : host.gpus)
    gpus.push_back({{"uuid", gpu.uuid}, {"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  for (const Disk& disk : host.disks) disks.push_back(json_of(disk));
  const Json json{{"host", host.host},
                  {"address", host.host_address},
                  {"kernel", host.kernel},
                  {"program", host.program},
                  {"loaded", host.loaded},
                  {"mpirun", host.mpi},
                  {"remote_shell", host.remote_shell},
                  {"cores", host.cores},
                  {"granted_cores", host.granted_cores},
                  {"simd", host.simd},
                  {"cross_memory", host.cross_memory},
                  {"memory_bytes", host.memory_bytes},
                  {"available_bytes", host.available_bytes},
                  {"shared_bytes", host.shared_bytes},
                  {"shared_free_bytes", host.shared_free_bytes},
                  {"huge_pages", host.huge_pages},
                  {"locked_limit_bytes", limit(host.locked_limit)},
                  {"file_limit", limit(host.file_limit)},
                  {"process_limit", limit(host.process_limit)},
                  {"driver", host.driver},
                  {"driver_cuda", host.driver_cuda ? Json(*host.driver_cuda) : Json()},
                  {"nccl", host.nccl},
                  {"nccl_version", host.nccl_version},
                  {"cublaslt", host.cublas},
                  {"gpus", gpus},
                  {"disks", disks},
                  {"ranks", ranks},
                  {"findings", json_of(findings_of(host))}};
  return dumped(json, -1);
}

std::string report_of(const std::vector<std::string>& hosts, const std::optional<Links>& links) {
  Json json{{"zero_doctor", 1}, {"version", ZERO_VERSION}, {"hosts", Json::array()}};
  for (const std::string& host : hosts) json["hosts"].push_back(parsed(host));
  json["ranks"] = links ? links->hosts.size() : 1;
  json["transport"] = links ? Json(links->transport) : Json();
  json["links"] = links ? json_of(*links) : Json::array();
  json["findings"] = links ? json_of(findings_of(*links)) : Json::array();
  return dumped(json, -1);
}

std::string text_of(const std::string& report) {
  const Json json = parsed(report);
  std::string text;
  Counts counts;
  try {
    const Json& hosts = json.at("hosts");
    for (const Json& host : hosts) {
      if (hosts.size() > 1) text += "-- " + host.at("host").get<std::string>() + "\n";
      text += text_of_findings(host.at("findings"), counts);
    }
    if (hosts.size() > 1) text += "-- all hosts\n";
    text += text_of_findings(json.at("findings"), counts);
  } catch (const Json::exception&) {
    throw ConfigError("not a report of zero doctor: " + printable(report));
  }
  return text + std::to_string(counts.failing) + " of these will make some runs fail (!!), " +
         std::to_string(counts.slow) + " will slow some down (!)\n";
}

std::string indented(const std::string& report) {
  return dumped(parsed(report), 1) + "\n";
}

}  // namespace zero::doctor
