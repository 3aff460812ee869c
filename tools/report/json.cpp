#include "tools/report/json.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/options/json_text.h"
#include "tools/report/number.h"
#include "zero/base/error.h"

namespace zero::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format_name = "zero-comparison";
constexpr int format_version = 1;

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string bits_of(double value) {
  return hexadecimal(std::bit_cast<std::uint64_t>(value));
}

std::uint64_t parse_hexadecimal(const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (!text.starts_with("0x") || std::from_chars(text.data() + 2, end, value, 16).ptr != end)
    throw std::invalid_argument("\"" + text + "\" is no hexadecimal number");
  return value;
}

double parse_bits(const Json& text) {
  return std::bit_cast<double>(parse_hexadecimal(text.get<std::string>()));
}

Json steps_json(const Variant& variant) {
  Json steps = Json::array();
  for (const Step& step : variant.steps)
    steps.push_back({{"loss", finite(step.loss)},
                     {"loss_bits", bits_of(step.loss)},
                     {"grad_norm", finite(step.gradient_norm)},
                     {"grad_norm_bits", bits_of(step.gradient_norm)},
                     {"skipped", step.skipped}});
  return steps;
}

Json timeline_json(const Comparison& comparison) {
  if (!comparison.timeline) return nullptr;
  Json lanes = Json::array();
  for (const Lane& lane : comparison.timeline->lanes) {
    Json spans = Json::array();
    for (const Span& span : lane.spans)
      spans.push_back({{"category", span.category},
                       {"kind", span.kind},
                       {"label", span.label},
                       {"begin", span.begin},
                       {"end", span.end}});
    lanes.push_back({{"name", lane.name}, {"spans", std::move(spans)}});
  }
  return {{"title", comparison.timeline->title},
          {"seconds", comparison.timeline->seconds},
          {"lanes", std::move(lanes)}};
}

std::optional<Timeline> parse_timeline(const Json& json) {
  const Json step = json.value("timeline", Json());
  if (step.is_null()) return std::nullopt;
  Timeline timeline{step.at("title"), step.at("seconds"), {}};
  for (const Json& each : step.at("lanes")) {
    Lane& lane = timeline.lanes.emplace_back(Lane{each.at("name"), {}});
    for (const Json& span : each.at("spans"))
      lane.spans.push_back({span.at("category"), span.at("kind"), span.at("label"),
                            span.at("begin"), span.at("end")});
  }
  return timeline;
}

Json tier_json(const std::vector<MemoryUse>& tier) {
  Json json = Json::object();
  for (const MemoryUse& use : tier)
    json[use.category] = {{"planned", use.planned}, {"peak", use.peak}};
  return json;
}

// Reports from before offload lack some tiers.
std::vector<MemoryUse> parse_tier(const Json& variant, const char* name) {
  std::vector<MemoryUse> tier;
  const Json json = variant.value(name, Json::object());
  for (const auto& [category, use] : json.items())
    tier.push_back({category, use.at("planned"), use.at("peak")});
  return tier;
}

Json prediction_json(const Variant& variant) {
  if (!variant.predicted) return nullptr;
  const Prediction& step = *variant.predicted;
  return {{"fits", step.fits},
          {"seconds", step.seconds},
          {"exposed", step.exposed},
          {"inside_node", step.inside_node},
          {"between_nodes", step.between_nodes},
          {"tokens_per_second", step.tokens_per_second},
          {"mfu", step.mfu}};
}

std::optional<Prediction> parse_prediction(const Json& variant) {
  const Json step = variant.value("predicted", Json());
  if (step.is_null()) return std::nullopt;
  return Prediction{step.at("fits"),        step.at("seconds"),       step.at("exposed"),
                    step.at("inside_node"), step.at("between_nodes"), step.at("tokens_per_second"),
                    step.at("mfu")};
}

// Bits are compared with those of reference_of().
Json variant_json(const Variant& variant, const Comparison& runs) {
  Json wire = Json::object();
  for (const WireUse& use : variant.wire)
    wire[use.operation] = {
        {"sent", use.sent}, {"inside_node", use.inside_node}, {"between_nodes", use.between_nodes}};
  Json file = Json::object(), copies = Json::object();
  for (const FileUse& use : variant.file)
    file[use.direction] = {{"bytes", use.bytes}, {"seconds", use.seconds}};
  for (const CopyUse& use : variant.copies)
    copies[use.direction] = {{"bytes", use.bytes}, {"seconds", use.seconds}};
  const std::string difference =
      variant.ran ? first_difference(reference_of(runs.variants), variant) : "";
  return {{"name", variant.name},
          {"ran", variant.ran},
          {"encoded", variant.ran && sums_otherwise(runs.variants, variant)},
          {"data_ranks", variant.data_ranks},
          {"encodings", variant.encodings},
          {"compression_error", finite(variant.compression_error)},
          {"bits_equal", variant.ran ? Json(difference.empty()) : Json(nullptr)},
          {"first_difference", difference},
          {"planned_bytes", variant.planned()},
          {"peak_bytes", variant.peak()},
          {"resident_bytes", variant.resident},
          {"baseline_bytes", variant.baseline},
          {"memory", tier_json(variant.memory)},
          {"in_host", tier_json(variant.in_host)},
          {"in_pinned", tier_json(variant.in_pinned)},
          {"copies_per_step", copies},
          {"in_file", tier_json(variant.in_file)},
          {"file_per_step", file},
          {"wire_bytes_per_step", wire},
          {"seconds_per_step",
           {{"compute", variant.time.compute},
            {"waiting", variant.time.waiting},
            {"optimizer", variant.time.optimizer},
            {"other", variant.time.other}}},
          {"tokens_per_second", finite(variant.tokens_per_second)},
          {"predicted", prediction_json(variant)},
          {"final_loss", variant.steps.empty() ? Json() : finite(variant.steps.back().loss)},
          {"digest", hexadecimal(variant.digest)},
          {"steps", steps_json(variant)}};
}

Variant parse_variant(const Json& json, bool plans) {
  Variant variant;
  variant.name = json.at("name");
  variant.ran = json.value("ran", !plans);
  variant.encoded = json.value("encoded", false);
  variant.encodings = json.value("encodings", "");
  variant.data_ranks = json.value("data_ranks", std::int64_t{0});
  const Json error = json.value("compression_error", Json());
  if (error.is_number()) variant.compression_error = error;
  variant.resident = json.at("resident_bytes");
  variant.baseline = json.at("baseline_bytes");
  for (const auto& [category, use] : json.at("memory").items())
    variant.memory.push_back({category, use.at("planned"), use.at("peak")});
  variant.in_host = parse_tier(json, "in_host");
  variant.in_pinned = parse_tier(json, "in_pinned");
  variant.in_file = parse_tier(json, "in_file");
  const Json copies = json.value("copies_per_step", Json::object());
  for (const auto& [direction, use] : copies.items())
    variant.copies.push_back({direction, use.at("bytes"), use.at("seconds")});
  const Json file = json.value("file_per_step", Json::object());
  for (const auto& [direction, use] : file.items())
    variant.file.push_back({direction, use.at("bytes"), use.at("seconds")});
  for (const auto& [operation, use] : json.at("wire_bytes_per_step").items())
    variant.wire.push_back(
        {operation, use.at("sent"), use.at("inside_node"), use.at("between_nodes")});
  const Json& time = json.at("seconds_per_step");
  variant.time = {time.at("compute"), time.at("waiting"), time.at("optimizer"), time.at("other")};
  const Json& rate = json.at("tokens_per_second");
  variant.tokens_per_second = rate.is_null() ? std::nan("") : rate.get<double>();
  variant.predicted = parse_prediction(json);
  variant.digest = parse_hexadecimal(json.at("digest"));
  for (const Json& step : json.at("steps"))
    variant.steps.push_back({parse_bits(step.at("loss_bits")),
                             parse_bits(step.at("grad_norm_bits")), step.at("skipped")});
  return variant;
}

Comparison parse(const Json& json) {
  if (json.at("format") != format_name || json.at("version") != format_version)
    throw std::invalid_argument("it is of another format or version");
  Comparison comparison;
  comparison.title = json.at("title");
  comparison.ranks = json.at("ranks");
  comparison.parameters = json.at("parameters");
  if (!json.at("loss_floor").is_null()) comparison.loss_floor = json.at("loss_floor");
  for (const Json& fact : json.at("facts"))
    comparison.facts.emplace_back(fact.at("name"), fact.at("value"));
  const bool plans = json.value("planned", false);
  for (const Json& variant : json.at("variants"))
    comparison.variants.push_back(parse_variant(variant, plans));
  for (const Json& absent : json.value("absent", Json::array()))
    comparison.absent.push_back({absent.at("name"), absent.at("reason")});
  for (const Json& remark : json.value("remarks", Json::array()))
    comparison.remarks.push_back(remark);
  comparison.timeline = parse_timeline(json);
  if (comparison.variants.empty() && comparison.absent.empty())
    throw std::invalid_argument("it holds no variant");
  return comparison;
}

}  // namespace

std::string json_of(const Comparison& comparison) {
  Json facts = Json::array(), variants = Json::array(), absent = Json::array();
  for (const auto& [name, value] : comparison.facts)
    facts.push_back({{"name", name}, {"value", value}});
  const Comparison runs = runs_of(comparison);
  for (const Variant& variant : comparison.variants)
    variants.push_back(variant_json(variant, runs));
  for (const Absent& each : comparison.absent)
    absent.push_back({{"name", each.name}, {"reason", each.reason}});
  const Json json = {
      {"format", format_name},
      {"version", format_version},
      {"title", comparison.title},
      {"ranks", comparison.ranks},
      {"parameters", comparison.parameters},
      {"planned", nothing_ran(comparison) && comparison.absent.empty()},
      {"bits_equal", runs.variants.size() > 1 ? Json(bits_equal(comparison)) : Json(nullptr)},
      {"loss_floor", comparison.loss_floor ? finite(*comparison.loss_floor) : Json(nullptr)},
      {"facts", facts},
      {"remarks", comparison.remarks},
      {"timeline", timeline_json(comparison)},
      {"absent", absent},
      {"variants", variants}};
  // Names may come from file names, so need not be UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Comparison comparison_of(const std::string& json, const std::string& source) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError(source + " is no report.json of train_gpt --report: " + problem);
  };
  try {
    return parse(parse_json<Json>(json, source + " is no report.json of train_gpt --report: it "));
  } catch (const Json::exception&) {
    refuse("a value is missing, or of another type than such a report has");
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
  }
  return {};  // not reached
}

}  // namespace zero::report
