#include "zero/monitor/json_lines.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "zero/base/error.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

}  // namespace

std::string json_of(const DiagnosticRecord& r) {
  Json record = {{"step", r.step}, {"steps", r.steps}};
  if (r.shows_time || r.shows_profile)
    record["seconds"] = {{"forward", r.time.forward},  {"backward", r.time.backward},
                         {"update", r.time.optimizer}, {"waiting", r.time.waiting},
                         {"other", r.time.other},      {"step", r.step_seconds()}};
  if (r.shows_memory) {
    for (const auto& [name, tier] : {std::pair{"memory", &r.rank.memory},
                                     {"in_host", &r.rank.in_host},
                                     {"in_file", &r.rank.in_file}})
      for (const MemoryUse& use : *tier)
        if (use.current != 0 || use.peak != 0)
          record[name][use.category] = {{"current", use.current}, {"peak", use.peak}};
    record["resident_bytes"] = r.rank.resident_bytes;
  }
  if (r.shows_exchanges)
    for (const ExchangeUse& use : r.exchanges)
      record["exchanges"][use.operation] = {
          {"calls", use.calls}, {"bytes", use.bytes_sent}, {"seconds", use.seconds}};
  if (r.shows_profile)
    record["profile"] = {{"parameters", r.work.parameters},
                         {"samples", r.work.samples},
                         {"flops", r.work.flops},
                         {"flops_per_second", number(r.work.flops / r.step_seconds())}};
  return record.dump();
}

namespace detail {

JsonLines::JsonLines(const std::string& key, const std::string& path) : key_(key), path_(path) {
  if (const std::string problem = out_.open(path); !problem.empty())
    throw ConfigError(key + ": " + path + " cannot be written: " + problem);
}

void JsonLines::line(const std::string& object) {
  if (const std::string problem = out_.write(object + '\n'); !problem.empty())
    throw SaveError(key_ + ": " + path_ + ": a record cannot be written: " + problem);
}

void JsonLines::write(const MonitorRecord& r) {
  Json record = {{"step", r.step},
                 {"samples", r.samples},
                 {"loss", number(r.loss)},
                 {"lr", number(r.learning_rate)}};
  if (r.loss_scale != 1) record["loss_scale"] = r.loss_scale;
  line(record.dump());
}

void JsonLines::write(const MonitorEvent& e) {
  const Json event = {{"tag", e.tag}, {"value", number(e.value)}, {"step", e.step}};
  line(Json{{"event", event}}.dump());
}

void JsonLines::write(const DiagnosticRecord& record) {
  line("{\"diagnostics\":" + json_of(record) + "}");
}

}  // namespace detail
}  // namespace zero
