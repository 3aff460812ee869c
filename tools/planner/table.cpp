#include "tools/planner/table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "config_schemas/load.h"
#include "tools/planner/planned_row.h"
#include "tools/planner/row_reasons.h"
#include "tools/planner/step_timeline.h"
#include "tools/report/number.h"
#include "tools/report/stage_variants.h"
#include "tools/report/table.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/plan/schedule_choice.h"

namespace zero::planner {
namespace {

using OrderedJson = nlohmann::ordered_json;

using report::fixed, report::time_text;

struct Column {
  const char* title;
  int width;
};
constexpr Column columns[] = {{"GPU GiB", 8}, {"host", 7},  {"fits", 5},  {"inside", 8},
                              {"between", 8}, {"step", 9},  {"waits", 6}, {"tok/s", 8},
                              {"MFU %", 6},   {"bubble", 6}};

// Whether a column has anything to say: the bubble is that of pipelines.
std::size_t columns_of(const PlanResult& result) {
  const bool stages =
      std::ranges::any_of(result.estimates, [](const Estimate& row) { return row.stages > 1; });
  return std::size(columns) - (stages ? 0 : 1);
}

std::string line_of(const std::string& name, std::vector<std::string> cells, std::size_t count) {
  cells.resize(count);
  char start[64];
  const int width = count < std::size(columns) ? 20 : 19;  // within 100 characters
  std::snprintf(start, sizeof start, "%-*s", width, name.c_str());
  std::string line = start;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    char cell[64];
    std::snprintf(cell, sizeof cell, " %*s", columns[i].width, cells[i].c_str());
    line += cell;
  }
  return line + "\n";
}

std::string row_line(const Estimate& row, bool chosen, std::size_t count) {
  const std::string name = (chosen ? "* " : "  ") + row.row;
  if (!row.refusal.empty()) return name + ": refused, see below\n";
  const double host = static_cast<double>(row.bytes_in_host + row.bytes_in_file);
  return line_of(
      name,
      {fixed(static_cast<double>(row.bytes_per_rank) / gibibyte, 2),
       host > mebibyte ? fixed(host / gibibyte, 1) : "-", row.fits ? "yes" : "no",
       fixed(row.step.inside_bytes / gibibyte, 2), fixed(row.step.between_bytes / gibibyte, 2),
       time_text(row.step.seconds), fixed(100 * row.step.exposed / row.step.seconds, 0) + " %",
       fixed(row.tokens_per_second, 0), fixed(100 * row.mfu, 1),
       row.stages > 1 ? fixed(100 * row.step.bubble, 0) + " %" : "-"},
      count);
}

// Breaks a text into lines of at most 98 columns; all but the first are indented.
std::string wrapped(const std::string& text) {
  constexpr std::size_t most = 98;
  std::string result;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > 0 && column + 1 + word.size() > most) {
      result += "\n  ";
      column = 2;
    } else if (column > 0) {
      result += " ";
      ++column;
    }
    result += word;
    column += word.size();
    begin = end + 1;
  }
  return result + "\n";
}

std::string heading(const PlanResult& result) {
  const Request& request = result.request;
  const Cluster& cluster = request.cluster;
  const auto planned = std::ranges::find_if(
      result.estimates, [](const Estimate& each) { return each.refusal.empty(); });
  std::string text =
      request.shape.name + " with " + fixed(static_cast<double>(request.shape.parameters), 0) +
      " parameters on " + std::to_string(cluster.ranks) + " ranks of " + cluster.device.name +
      " (" + std::to_string(cluster.nodes()) + (cluster.nodes() == 1 ? " node)" : " nodes)") +
      ", " + fixed(planned->tokens_per_step, 0) + " tokens per rank and step" +
      (request.recompute ? ", with recomputation" : "");
  text = wrapped(text);
  for (const std::string& notice : request.shape.notices) text += wrapped("notice: " + notice);
  return text + "\n";
}

std::string conclusions(const PlanResult& result) {
  std::string text;
  const Recommendation& chosen = result.recommendation;
  text += chosen.row
              ? wrapped("* " + result.estimates[*chosen.row].row + ": " + chosen.reason + ".")
              : wrapped("no recommendation: " + chosen.reason + ".");
  if (result.hiding_tokens)
    text += wrapped("Waits fall to " + fixed(100 * hidden_share, 0) + " % of its step at about " +
                    fixed(static_cast<double>(*result.hiding_tokens), 0) +
                    " tokens per rank and micro step.");
  else if (chosen.row)
    text += wrapped("No number of tokens hides its communication.");
  for (const std::string& reason : result.reasons) text += wrapped(reason);
  for (const Change& change : result.changes)
    text += wrapped("Fits with " + change.what + ": " + byte_text(change.estimate.bytes_per_rank) +
                    " per rank, " + time_text(change.estimate.step.seconds) + " per step.");
  std::set<std::string> schedules;
  for (const Estimate& row : result.estimates)
    if (!row.pipeline.reason.empty())
      schedules.insert(std::to_string(row.stages) +
                       " stages: " + detail::schedule_text(row.pipeline) + ".");
  for (const std::string& schedule : schedules) text += wrapped(schedule);
  for (const Estimate& row : result.estimates)
    if (!row.refusal.empty()) text += wrapped("refused: " + row.row + ": " + row.refusal);
  return text;
}

std::string price_text(const PlanResult& result) {
  if (!result.budget) return "";
  std::string text;
  const Budget& budget = *result.budget;
  const auto line = [&](const std::string& name, int ranks, const RunCost& cost) {
    text += wrapped(name + ": " + fixed(budget.tokens, 0) + " tokens take " + fixed(cost.hours, 1) +
                    " hours on " + std::to_string(ranks) + " ranks and cost " +
                    fixed(cost.price, 2) + ".");
  };
  const int ranks = result.request.cluster.ranks;
  if (result.recommendation.row) {
    const Estimate& row = result.estimates[*result.recommendation.row];
    line(row.row, ranks, cost_of(row, ranks, budget.tokens, budget.price_per_hour));
  }
  if (result.cheapest)
    line("cheapest, " + result.cheapest->estimate.row, result.cheapest->ranks,
         result.cheapest->cost);
  else
    text += wrapped("No number of whole nodes up to " +
                    std::to_string(budget.deadline_hours > 0 ? most_searched_ranks : ranks) +
                    " ranks fits and ends in time.");
  return text;
}

OrderedJson memory_json(const std::vector<MemoryUse>& uses) {
  OrderedJson json = OrderedJson::object();
  for (const MemoryUse& use : uses)
    if (use.planned > 0) json[use.category] = use.planned;
  return json;
}

std::vector<report::MemoryUse> memory_of(const std::vector<MemoryUse>& uses,
                                         std::int64_t activations) {
  std::vector<report::MemoryUse> result;
  for (const MemoryUse& use : uses) {
    const std::int64_t bytes = use.planned + (use.category == "activations" ? activations : 0);
    result.push_back({use.category, bytes, bytes});
  }
  return result;
}

// Sets a key by path; null removes it. A value that is not JSON is a string.
void set_path(OrderedJson& config, const std::string& path, const std::string& value) {
  OrderedJson* section = &config;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1)
    section = &(*section)[path.substr(begin, dot - begin)];
  OrderedJson parsed = OrderedJson::parse(value, nullptr, false);
  if (parsed.is_discarded() && (value.starts_with('{') || value.starts_with('[')))
    parsed = OrderedJson::parse(config_as_json(value, path));  // such as {type: SGD}
  const std::string key = path.substr(begin);
  if (parsed.is_null())
    section->erase(key);
  else
    (*section)[key] = parsed.is_discarded() ? OrderedJson(value) : parsed;
}

void remove_path(OrderedJson& config, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string section = path.substr(0, dot);
  if (config.contains(section)) config[section].erase(path.substr(dot + 1));
}

bool has_path(const OrderedJson& config, const std::string& path) {
  std::string pointer = "/" + path;
  std::ranges::replace(pointer, '.', '/');
  return config.contains(OrderedJson::json_pointer(pointer));
}

}  // namespace

PlanResult make_plan(const Request& request, const std::vector<PlanRow>& rows,
                     const std::optional<Budget>& budget) {
  PlanResult result{request, estimates(request, rows)};
  result.reasons = explain_rows(result.estimates, rows);
  result.recommendation = recommend(result.estimates);
  result.budget = budget;
  const std::optional<std::size_t> chosen = result.recommendation.row;
  if (chosen) {
    const Estimate& row = result.estimates[*chosen];
    result.hiding_tokens = hiding_tokens(request, {row.row, row.overrides});
  }
  if (!chosen) result.changes = cheapest_changes(request, 3);
  if (budget) result.cheapest = cheapest_shape(request, *budget);
  return result;
}

std::vector<char> shown_rows(const PlanResult& result, Rows rows) {
  const std::vector<Estimate>& all = result.estimates;
  std::vector<char> shown(all.size(), rows == Rows::all);
  std::optional<std::size_t> smallest;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string row = all[i].row.substr(0, all[i].row.find(report::stages_mark));
    const bool named = std::ranges::count(std::array{"config", "0", "1", "2", "3"}, row) > 0;
    if (named || result.recommendation.row == i) shown[i] = 1;
    if (all[i].fits && (!smallest || all[i].bytes_per_rank < all[*smallest].bytes_per_rank))
      smallest = i;
  }
  if (smallest) shown[*smallest] = 1;
  return shown;
}

std::string text_of(const PlanResult& result, Rows rows) {
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  if (!result.request.cluster.device.gpu) titles.front() = "GiB", titles[1] = "file";
  const std::size_t count = columns_of(result);
  std::string text = heading(result) + line_of("  row", titles, count);
  const std::vector<char> shown = shown_rows(result, rows);
  for (std::size_t i = 0; i < shown.size(); ++i)
    if (shown[i]) text += row_line(result.estimates[i], result.recommendation.row == i, count);
  if (const auto more = std::ranges::count(shown, 0))
    text += "  and " + std::to_string(more) + " more rows: --all\n";
  return text + "\n" + conclusions(result) + price_text(result);
}

std::string memory_text(const PlanResult& result) {
  constexpr std::size_t at_once = 3;  // columns within 100 characters
  report::Comparison comparison = page_of(result);
  comparison.remarks.clear();
  const std::vector<report::Variant> all = std::move(comparison.variants);
  std::string text;
  for (std::size_t begin = 0; begin < all.size(); begin += at_once) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = std::min(at_once, all.size() - begin);
    comparison.variants.assign(first, first + static_cast<std::ptrdiff_t>(count));
    const std::string table = report::text_of(comparison);
    text += table.substr(0, table.find("\n\n") + 2);
  }
  return text;
}

std::string json_of(const PlanResult& result) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < result.estimates.size(); ++i) {
    const Estimate& row = result.estimates[i];
    OrderedJson json{{"row", row.row},
                     {"ranks", result.request.cluster.ranks},
                     {"parameters", result.request.shape.parameters}};
    if (!row.refusal.empty()) {
      json["fits"] = false;
      json["refused"] = row.refusal;
      list.push_back(std::move(json));
      continue;
    }
    json["pipeline_stages"] = row.stages;
    if (row.stages > 1) {
      json["schedule"] = row.pipeline.schedule;
      json["chunks"] = row.pipeline.chunks;
      json["bubble"] = row.step.bubble;
    }
    json["bytes_per_rank"] = row.bytes_per_rank;
    json["fits"] = row.fits;
    json["bytes_inside_node"] = row.step.inside_bytes;
    json["bytes_between_nodes"] = row.step.between_bytes;
    json["step_seconds"] = row.step.seconds;
    json["exposed_seconds"] = row.step.exposed;
    json["tokens_per_s_per_rank"] = row.tokens_per_second;
    json["mfu"] = row.mfu;
    json["model_state_bytes"] = model_states(row);
    json["deepspeed_estimate_bytes"] =
        row.deepspeed_bytes ? OrderedJson(*row.deepspeed_bytes) : OrderedJson();
    json["activation_bytes"] = row.activations;
    json["memory"] = memory_json(row.memory.memory);
    json["in_host"] = memory_json(row.memory.in_host);
    json["in_pinned"] = memory_json(row.memory.in_pinned);
    json["in_file"] = memory_json(row.memory.in_file);
    json["recommended"] = result.recommendation.row == i;
    if (!row.fits) json["why_not"] = row.why_not;
    if (result.recommendation.row == i && result.hiding_tokens)
      json["hiding_tokens"] = *result.hiding_tokens;
    list.push_back(std::move(json));
  }
  return list.dump(2) + "\n";
}

report::Comparison page_of(const PlanResult& result) {
  const Request& request = result.request;
  report::Comparison comparison;
  comparison.title = request.shape.name + " on " + std::to_string(request.cluster.ranks) +
                     " ranks of " + request.cluster.device.name;
  comparison.ranks = request.cluster.ranks;
  comparison.parameters = request.shape.parameters;
  comparison.facts = {{"device", request.cluster.device.name},
                      {"nodes", std::to_string(request.cluster.nodes())},
                      {"activations", request.shape.activation_model}};
  if (!request.config_file.empty()) comparison.facts.emplace_back("config", request.config_file);
  for (const Estimate& row : result.estimates) {
    if (!row.refusal.empty()) continue;
    report::Variant variant;
    variant.name = row.row;
    variant.ran = false;
    variant.memory = memory_of(row.memory.memory, row.activations);
    variant.in_host = memory_of(row.memory.in_host, 0);
    variant.in_pinned = memory_of(row.memory.in_pinned, 0);
    variant.in_file = memory_of(row.memory.in_file, 0);
    variant.predicted = {row.fits,
                         row.step.seconds,
                         row.step.exposed,
                         row.step.inside_bytes,
                         row.step.between_bytes,
                         row.tokens_per_second,
                         row.mfu};
    comparison.variants.push_back(std::move(variant));
  }
  const Recommendation& chosen = result.recommendation;
  comparison.remarks = {(chosen.row ? result.estimates[*chosen.row].row + ": " : "") +
                        chosen.reason + "."};
  if (chosen.row) {
    const Estimate& row = result.estimates[*chosen.row];
    comparison.timeline = timeline_of(result.request, {row.row, row.overrides});
  }
  for (const Estimate& row : result.estimates)
    if (!row.refusal.empty()) comparison.remarks.push_back(row.row + " is refused: " + row.refusal);
  return comparison;
}

std::string config_of(const PlanResult& result) {
  const Recommendation& chosen = result.recommendation;
  if (!chosen.row)
    throw ConfigError("--write: " + chosen.reason + ", so there is no config to write");
  const Request& request = result.request;
  OrderedJson config = OrderedJson::parse(!request.has_config() ? default_config(request)
                                          : request.config_file.empty()
                                              ? config_as_json(request.config_text, "the config")
                                              : config_as_json(request.config_file));
  if (request.micro_batch || !request.has_config()) {
    config["train_micro_batch_size_per_gpu"] = request.micro_batch.value_or(1);
    config.erase("train_batch_size");
    config.erase("elasticity");
  }
  for (const char* key : strategy_keys)
    if (!result.estimates[*chosen.row].row.starts_with("config")) remove_path(config, key);
  const Text defaults = {{"zero_core.reshard_after_forward", "true"},
                         {"zero_optimization.offload_optimizer.ratio", "1"}};
  for (const auto& overrides : {request.overrides, result.estimates[*chosen.row].overrides})
    for (const auto& [path, value] : overrides) {
      const auto fallback = defaults.find(path);
      const bool off = fallback != defaults.end()
                           ? value == fallback->second
                           : value == "none" || value == "null" || value == "false";
      if (!off || has_path(config, path)) set_path(config, path, value);
    }
  const std::string text = config.dump(2) + "\n";
  parse_config(text, "the config to write");
  return text;
}

}  // namespace zero::planner
