#include "tools/report/table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tools/report/number.h"
#include "tools/report/verdict.h"

namespace zero::report {
namespace {

using Figure = std::function<std::string(const Variant&)>;
using Value = std::function<double(const Variant&)>;

class Builder {
 public:
  explicit Builder(const Comparison& comparison) : comparison_(comparison) {
    for (const Variant& variant : comparison.variants) table_.columns.push_back(variant.name);
  }

  void heading(std::string label) {
    table_.rows.push_back({Row::Kind::heading, std::move(label), {}});
  }
  // Adds no row if all cells are empty.
  void row(Row::Kind kind, std::string label, const Figure& figure) {
    add(kind, std::move(label), "", figure);
  }
  // Adds no row if all figures would read as zero.
  void figures(Row::Kind kind, std::string label, const Unit& unit, const Value& value) {
    add(kind, std::move(label), unit(0), [&](const Variant& v) { return unit(value(v)); });
  }
  // As figures(), for values that a plan does not have.
  void measures(Row::Kind kind, std::string label, const Unit& unit, const Value& value) {
    add(kind, std::move(label), unit(0),
        [&](const Variant& v) { return v.ran ? unit(value(v)) : ""; });
  }
  double largest(const Value& value) const {
    double largest = 0;
    for (const Variant& variant : comparison_.variants) largest = std::max(largest, value(variant));
    return largest;
  }
  Table take() { return std::move(table_); }

 private:
  void add(Row::Kind kind, std::string label, const std::string& nothing, const Figure& figure) {
    Row row{kind, std::move(label), {}};
    bool says = false;
    for (const Variant& variant : comparison_.variants) {
      row.cells.push_back(figure(variant));
      says |= !row.cells.back().empty() && row.cells.back() != nothing;
    }
    if (says) table_.rows.push_back(std::move(row));
  }

  const Comparison& comparison_;
  Table table_;
};

constexpr auto part = Row::Kind::part, whole = Row::Kind::whole;

void add_memory(Builder& builder, const Comparison& comparison) {
  const auto peak = [](const Variant& v) { return static_cast<double>(v.peak()); };
  const auto resident = [](const Variant& v) { return v.resident; };
  if (builder.largest(peak) == 0) return;  // logs have no memory
  const Unit unit = byte_unit(std::max(builder.largest(peak), builder.largest(resident)));
  const bool on_gpu = !used_in_host(comparison).empty();
  builder.heading(std::string(on_gpu ? "GPU memory per rank, " : "memory per rank, ") + unit.name);
  for (const std::string& category : used_categories(comparison))
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(memory_of(v, category).peak);
    });
  if (nothing_ran(comparison)) return builder.figures(whole, "all of these", unit, peak);
  builder.measures(whole, "peak, all of these", unit, peak);
  builder.figures(whole, "planned", unit,
                  [](const Variant& v) { return static_cast<double>(v.planned()); });
  if (!on_gpu) builder.measures(whole, "resident (PSS)", unit, resident);
}

std::string rate(double bytes, double seconds) {
  return seconds > 0 ? fixed(bytes / seconds / gibibyte, 2) : "";
}

// Host memory of GPU ranks.
void add_host(Builder& builder, const Comparison& comparison) {
  const std::vector<std::string> categories = used_in_host(comparison);
  if (categories.empty()) return;
  const auto rests = [](const Variant& v) { return static_cast<double>(v.host_bytes()); };
  const auto resident = [](const Variant& v) { return v.resident; };
  const Unit unit = byte_unit(std::max(builder.largest(rests), builder.largest(resident)));
  builder.heading(std::string("in host memory per rank, ") + unit.name);
  for (const std::string& category : categories)
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(in_host_of(v, category).peak);
    });
  builder.figures(whole, "in host memory, all of these", unit, rests);
  builder.figures(whole, "of it page-locked", unit,
                  [](const Variant& v) { return static_cast<double>(v.pinned_bytes()); });
  builder.measures(whole, "resident (PSS)", unit, resident);
  for (const auto& [direction, title] :
       {std::pair{"to_host", "GPU to host"}, {"to_device", "host to GPU"}}) {
    const auto bytes = [direction = direction](const Variant& v) {
      return copy_of(v, direction).bytes;
    };
    builder.measures(part, std::string(title) + " per step", unit, bytes);
    builder.row(part, std::string(title) + ", GiB/s", [direction = direction](const Variant& v) {
      const CopyUse use = copy_of(v, direction);
      return rate(use.bytes, use.seconds);
    });
  }
}

void add_file(Builder& builder, const Comparison& comparison) {
  const std::vector<std::string> categories = used_in_file(comparison);
  if (categories.empty()) return;
  const auto rests = [](const Variant& v) { return static_cast<double>(v.file_bytes()); };
  const Unit unit = byte_unit(builder.largest(rests));
  builder.heading(std::string("in the file per rank, ") + unit.name);
  for (const std::string& category : categories)
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(in_file_of(v, category).peak);
    });
  builder.figures(whole, "in the file, all of these", unit, rests);
  for (const auto& [direction, did] : {std::pair{"read", "read"}, {"write", "written"}}) {
    const auto per_second = [direction = direction](const Variant& v) {
      const FileUse use = file_of(v, direction);
      return rate(use.bytes, use.seconds);
    };
    builder.measures(
        part, std::string(did) + " per step", unit,
        [direction = direction](const Variant& v) { return file_of(v, direction).bytes; });
    builder.row(part, std::string(did) + ", GiB/s", per_second);
  }
}

void add_wire(Builder& builder, const Comparison& comparison) {
  const auto sent = [](const Variant& v) { return v.sent(); };
  const std::vector<std::string> operations = used_operations(comparison);
  if (operations.empty()) return;
  const Unit unit = byte_unit(builder.largest(sent));
  builder.heading(std::string("on the wire per rank and step, ") + unit.name);
  for (const std::string& operation : operations)
    builder.measures(part, title_of(operation), unit,
                     [&](const Variant& v) { return wire_of(v, operation).sent; });
  builder.measures(whole, "sent, all of these", unit, sent);
  builder.measures(whole, "inside nodes", unit, [](const Variant& v) { return v.inside_node(); });
  builder.measures(whole, "between nodes", unit,
                   [](const Variant& v) { return v.between_nodes(); });
}

void add_time(Builder& builder) {
  const auto total = [](const Variant& v) { return v.time.total(); };
  if (builder.largest(total) == 0) return;
  const Unit unit = time_unit(builder.largest(total));
  builder.heading(std::string("time per step, ") + unit.name);
  builder.measures(part, "compute", unit, [](const Variant& v) { return v.time.compute; });
  builder.measures(part, "wait on communication", unit,
                   [](const Variant& v) { return v.time.waiting; });
  builder.measures(part, "optimizer", unit, [](const Variant& v) { return v.time.optimizer; });
  builder.measures(part, "other", unit, [](const Variant& v) { return v.time.other; });
  builder.measures(whole, "step", unit, total);
}

// Simulated steps of plans.
void add_prediction(Builder& builder) {
  const auto of = [](double Prediction::*member) {
    return [member](const Variant& v) { return v.predicted ? (*v.predicted).*member : 0.0; };
  };
  const auto seconds = of(&Prediction::seconds);
  if (builder.largest(seconds) == 0) return;
  const Unit unit = time_unit(builder.largest(seconds));
  builder.row(whole, "fits", [](const Variant& v) {
    return !v.predicted ? "" : v.predicted->fits ? "yes" : "no";
  });
  builder.heading(std::string("predicted step, ") + unit.name);
  builder.figures(part, "wait on communication", unit, of(&Prediction::exposed));
  builder.figures(whole, "step", unit, seconds);
  const Unit bytes = byte_unit(std::max(builder.largest(of(&Prediction::inside_node)),
                                        builder.largest(of(&Prediction::between_nodes))));
  builder.heading(std::string("sent per rank and step, ") + bytes.name);
  builder.figures(part, "inside nodes", bytes, of(&Prediction::inside_node));
  builder.figures(part, "between nodes", bytes, of(&Prediction::between_nodes));
  builder.row(whole, "tokens/s of a rank", [](const Variant& v) {
    return v.predicted ? fixed(v.predicted->tokens_per_second, 0) : "";
  });
  builder.row(whole, "MFU, %",
              [](const Variant& v) { return v.predicted ? fixed(100 * v.predicted->mfu, 1) : ""; });
}

// Adds the row only if several variants ran.
void add_bits(Builder& builder, const Comparison& comparison) {
  const Comparison runs = runs_of(comparison);
  if (runs.variants.size() < 2) return;
  builder.row(whole, "bits equal", [&](const Variant& v) {
    if (!v.ran) return "";
    if (first_difference(reference_of(runs.variants), v).empty()) return "yes";
    const bool as_promised = first_difference(peer_of(runs.variants, v), v).empty();
    if (!sums_otherwise(runs.variants, v) || !as_promised) return "NO";
    return v.data_ranks == reference_of(runs.variants).data_ranks ? "encoded" : "other sums";
  });
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  // Continuation bytes of a UTF-8 character take no column.
  const auto columns = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
  const std::string blanks(width > columns ? width - columns : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Table table_of(const Comparison& comparison) {
  if (comparison.variants.empty()) return {};
  Builder builder(comparison);
  add_memory(builder, comparison);
  add_host(builder, comparison);
  add_file(builder, comparison);
  if (nothing_ran(comparison)) {
    add_prediction(builder);
    return builder.take();
  }
  add_wire(builder, comparison);
  add_time(builder);
  builder.row(whole, "tokens/s",
              [](const Variant& v) { return v.ran ? fixed(v.tokens_per_second, 0) : ""; });
  builder.row(whole, "final loss", [](const Variant& v) {
    return v.steps.empty() ? "" : fixed(v.steps.back().loss, 6);
  });
  builder.row(whole, "compression error", [](const Variant& v) {
    return v.compression_error > 0 ? fixed(v.compression_error, 6) : "";
  });
  add_bits(builder, comparison);
  return builder.take();
}

std::string title_of(const std::string& name) {
  std::string title = name;
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string text_of(const Comparison& comparison) {
  constexpr std::size_t gap = 2;
  const Table table = table_of(comparison);
  std::size_t label_width = 0, cell_width = 10;
  for (const std::string& column : table.columns)
    cell_width = std::max(cell_width, column.size() + gap);
  for (const Row& row : table.rows) {
    label_width = std::max(label_width, row.label.size() + gap);
    for (const std::string& cell : row.cells) cell_width = std::max(cell_width, cell.size() + gap);
  }
  const auto line = [&](const std::string& label, const std::vector<std::string>& cells) {
    std::string text = padded(label, label_width, false);
    for (const std::string& cell : cells) text += padded(cell, cell_width, true);
    return trimmed(text);
  };
  std::string text = table.columns.empty() ? "" : line("", table.columns);
  for (const Row& row : table.rows)
    text += line((row.kind == Row::Kind::part ? "  " : "") + row.label, row.cells);
  text += (text.empty() ? "" : "\n") + comparison.title + "\n";
  for (const std::string& sentence : comparison.remarks) text += sentence + "\n";
  for (const std::string& sentence : verdict_of(comparison).sentences) text += sentence + "\n";
  return text;
}

}  // namespace zero::report
