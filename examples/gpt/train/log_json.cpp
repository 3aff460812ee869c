#include "examples/gpt/train/log_json.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace gpt {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
std::string hexadecimal(T value) {
  char text[2 * sizeof(T) + 1];
  std::snprintf(text, sizeof text, "%0*llx", static_cast<int>(2 * sizeof(T)),
                static_cast<unsigned long long>(value));
  return text;
}

std::string bits_of(double value) {
  return hexadecimal(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

// Returns null for infinity and NaN, since JSON has neither; the bits next to it identify the
// value.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string text_of(const std::string& variant, const Json& record) {
  Json line = Json::object();
  if (!variant.empty()) line["variant"] = variant;
  line.update(record);
  return line.dump();
}

Json tier_summary(const std::vector<zero::MemoryUse>& tier) {
  Json summary = Json::object();
  for (const zero::MemoryUse& use : tier)
    summary[use.category] = {{"planned", use.planned}, {"peak", use.peak}};
  return summary;
}

Json rank_summary(const zero::RankReport& rank, int number) {
  Json traffic = Json::object(), file = Json::object(), copies = Json::object();
  for (const zero::CopyUse& use : rank.copies)
    copies[use.direction] = {{"bytes", use.bytes}, {"seconds", use.seconds}};
  for (const zero::FileUse& use : rank.file)
    file[use.direction] = {{"bytes", use.bytes}, {"seconds", use.seconds}};
  for (const zero::TrafficUse& use : rank.traffic)
    traffic[use.operation] = {{"calls", use.calls},
                              {"bytes", use.bytes_sent},
                              {"inside_node", use.bytes_inside_node},
                              {"between_nodes", use.bytes_between_nodes}};
  const zero::TimeUse& time = rank.time;
  return {{"rank", number},
          {"memory", tier_summary(rank.memory)},
          {"in_host", tier_summary(rank.in_host)},
          {"in_pinned", tier_summary(rank.in_pinned)},
          {"copies", copies},
          {"in_file", tier_summary(rank.in_file)},
          {"file", file},
          {"sent", traffic},
          {"seconds",
           {{"kernels", time.kernels},
            {"waiting", time.waiting},
            {"optimizer", time.optimizer},
            {"other", time.other}}},
          {"control_bytes", rank.control_bytes},
          {"baseline_bytes", rank.baseline_bytes},
          {"resident_bytes", rank.resident_bytes}};
}

// Returns true in the second or a later start of a job (docs/restarts.md): ZERO_GENERATION is
// JOB:NUMBER.
bool is_restart() {
  const char* generation = std::getenv("ZERO_GENERATION");
  const char* number = generation == nullptr ? nullptr : std::strchr(generation, ':');
  return number != nullptr && std::atoll(number + 1) > 1;
}

}  // namespace

JsonLog::JsonLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  restarted_ = is_restart() && std::filesystem::is_regular_file(path);
  using Old = zero::GrowingFile::Old;
  const std::string problem = out_.open(path, restarted_ ? Old::keep : Old::empty);
  if (!problem.empty())
    throw zero::ConfigError("--log-json " + path + " cannot be written: " + problem);
}

void JsonLog::continue_after(std::int64_t step) {
  if (!restarted_) return;
  std::string kept;
  std::ifstream before(path_);
  for (std::string line; std::getline(before, line);) {
    const Json record = Json::parse(line, nullptr, false);  // the last line may be incomplete
    if (record.is_object() && record.contains("step") && record["step"] <= step)
      kept += line + '\n';
  }
  std::string problem = zero::replace_file(path_, kept);
  if (problem.empty()) problem = out_.open(path_);
  if (!problem.empty())
    throw zero::SaveError("--log-json " + path_ + ": it cannot be continued: " + problem);
}

void JsonLog::line(const std::string& text) {
  if (const std::string problem = out_.write(text + '\n'); !problem.empty())
    throw zero::SaveError("--log-json " + path_ + ": writing failed: " + problem);
}

void JsonLog::write(const TrainingRecord& r) {
  if (path_.empty()) return;
  Json step = {{"step", r.step},
               {"loss", number(r.loss)},
               {"loss_bits", bits_of(r.loss)},
               {"grad_norm", number(r.gradient_norm)},
               {"grad_norm_bits", bits_of(r.gradient_norm)},
               {"lr", r.learning_rate},
               {"tokens_per_s", r.tokens_per_second},
               {"step_ms", 1e3 * r.seconds},
               {"loss_scale", r.loss_scale},
               {"skipped", r.skipped}};
  if (r.compression_error > 0) step["compression_error"] = number(r.compression_error);
  line(text_of(variant_, std::move(step)));
}

void JsonLog::write(const zero::DiagnosticRecord& record) {
  if (path_.empty()) return;
  line(text_of(variant_, {{"diagnostics", Json::parse(json_of(record))}}));
}

void JsonLog::write_state(const zero::Engine& engine, const std::vector<std::string>& units) {
  if (path_.empty()) return;
  line(text_of(variant_,
               {{"state", {{"config", zero::describe(engine.config())}, {"units", units}}}}));
}

void JsonLog::write_summary(const zero::EngineReport& report, std::uint64_t digest,
                            const std::string& checkpoint) {
  if (path_.empty()) return;
  Json ranks = Json::array();
  for (const zero::RankReport& rank : report.ranks)
    ranks.push_back(rank_summary(rank, static_cast<int>(ranks.size())));
  line(text_of(variant_, {{"summary",
                           {{"parameter_count", report.parameter_count},
                            {"layout_hash", hexadecimal(report.layout_hash)},
                            {"digest", hexadecimal(digest)},
                            {"checkpoint", checkpoint.empty() ? Json(nullptr) : Json(checkpoint)},
                            {"ranks", ranks}}}}));
}

}  // namespace gpt
