#include "llm/pre_tokenizer.h"

#include <algorithm>

#include "llm/byte_level.h"
#include "llm/normalizer.h"

namespace dovetail {
namespace {
// GPT-2's words: English contractions, then runs of letters, of digits or of other signs, each with the space before it.
constexpr std::string_view kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// What the reference's Whitespace counts as a word.
constexpr std::string_view kWords = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]+|[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}\\s]+";
constexpr std::string_view kPunctuation = "[\\p{P}$+<=>^`|~]";

struct BehaviorName {
  std::string_view name;
  PreTokenizer::Behavior value;
};
constexpr BehaviorName kBehaviors[] = {
    {"Removed", PreTokenizer::Behavior::kRemoved},
    {"Isolated", PreTokenizer::Behavior::kIsolated},
    {"MergedWithPrevious", PreTokenizer::Behavior::kMergedWithPrevious},
    {"MergedWithNext", PreTokenizer::Behavior::kMergedWithNext},
    {"Contiguous", PreTokenizer::Behavior::kContiguous},
};

Result<PreTokenizer::Behavior> ParseBehavior(json::Object object, std::string_view otherwise, const std::string& where) {
  DT_ASSIGN_OR_RETURN(const std::string name, json::GetString(object, "behavior", otherwise, where));
  for (const auto& [known, value] : kBehaviors) {
    if (name == known) return value;
  }
  return Unsupported(where, ": the behavior '", name, "' is not supported");
}
}  // namespace

Status PreTokenizer::ParseStep(json::Object object, const std::string& type, const std::string& where, Step* step) {
  if (type == "Split") {
    DT_ASSIGN_OR_RETURN(step->pattern, ParsePattern(object, "pattern", where));
    DT_ASSIGN_OR_RETURN(step->behavior, ParseBehavior(object, "", where));
    DT_ASSIGN_OR_RETURN(step->invert, json::GetBool(object, "invert", false, where));
  } else if (type == "ByteLevel") {
    step->kind = Kind::kByteLevel;
    DT_ASSIGN_OR_RETURN(const bool prefix, json::GetBool(object, "add_prefix_space", true, where));
    DT_ASSIGN_OR_RETURN(step->split, json::GetBool(object, "use_regex", true, where));
    step->prefix = prefix ? Prefix::kAlways : Prefix::kNever;
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Compile(kGpt2));
  } else if (type == "Digits") {
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Compile("\\p{N}"));
    DT_ASSIGN_OR_RETURN(const bool individual, json::GetBool(object, "individual_digits", false, where));
    step->behavior = individual ? Behavior::kIsolated : Behavior::kContiguous;
  } else if (type == "Punctuation") {
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Compile(kPunctuation));
    DT_ASSIGN_OR_RETURN(step->behavior, ParseBehavior(object, "Isolated", where));
  } else if (type == "Whitespace") {
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Compile(kWords));
    step->behavior = Behavior::kRemoved;
    step->invert = true;
  } else if (type == "WhitespaceSplit") {
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Compile("\\s"));
    step->behavior = Behavior::kRemoved;
  } else if (type == "Metaspace") {
    step->kind = Kind::kMetaspace;
    DT_ASSIGN_OR_RETURN(step->replacement, json::GetString(object, "replacement", "\xE2\x96\x81", where));
    DT_ASSIGN_OR_RETURN(const bool legacy_prefix, json::GetBool(object, "add_prefix_space", true, where));
    DT_ASSIGN_OR_RETURN(const std::string scheme, json::GetString(object, "prepend_scheme", legacy_prefix ? "always" : "never", where));
    if (scheme != "always" && scheme != "never" && scheme != "first") {
      return Unsupported(where, ": the prepend_scheme '", scheme, "' is not always, never or first");
    }
    step->prefix = scheme == "always" ? Prefix::kAlways : scheme == "first" ? Prefix::kFirst : Prefix::kNever;
    DT_ASSIGN_OR_RETURN(step->split, json::GetBool(object, "split", true, where));
    DT_ASSIGN_OR_RETURN(step->pattern, Regex::Literal(step->replacement));
    step->behavior = Behavior::kMergedWithNext;
  } else {
    return Unsupported(where, ": the pre-tokenizer '", type,
                       "' is not supported (Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit and Metaspace are)");
  }
  return OkStatus();
}

Status PreTokenizer::ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps) {
  DT_ASSIGN_OR_RETURN(const std::string type, json::GetString(object, "type", where));
  if (type != "Sequence") {
    Step step;
    DT_RETURN_IF_ERROR(ParseStep(object, type, where, &step));
    steps->push_back(std::move(step));
    return OkStatus();
  }
  DT_ASSIGN_OR_RETURN(const json::Array parts, json::GetArray(object, "pretokenizers", where));
  size_t i = 0;
  for (const json::Element part : parts) {
    const std::string name = StrCat(where, ".pretokenizers[", i++, "]");
    DT_ASSIGN_OR_RETURN(const json::Object child, json::AsObject(part, name));
    DT_RETURN_IF_ERROR(ParseInto(child, name, steps));
  }
  return OkStatus();
}

Result<PreTokenizer> PreTokenizer::Parse(json::Object object, const std::string& where) {
  PreTokenizer pre;
  DT_RETURN_IF_ERROR(ParseInto(object, where, &pre.steps_));
  return pre;
}

Result<std::vector<std::string_view>> PreTokenizer::Split(const Regex& pattern, Behavior behavior, bool invert, std::string_view text) {
  struct Part {
    size_t begin, end;
    bool matched;
  };
  DT_ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, pattern.FindAll(text));
  std::vector<Part> parts;
  size_t at = 0;
  for (const Regex::Match& m : matches) {
    if (m.begin > at) parts.push_back({at, m.begin, invert});
    parts.push_back({m.begin, m.end, !invert});
    at = m.end;
  }
  if (at < text.size()) parts.push_back({at, text.size(), invert});

  std::vector<Part> joined;
  bool previous = false;
  switch (behavior) {
    case Behavior::kRemoved:
      std::copy_if(parts.begin(), parts.end(), std::back_inserter(joined), [](const Part& p) { return !p.matched; });
      break;
    case Behavior::kIsolated: joined = std::move(parts); break;
    case Behavior::kContiguous:
      for (const Part& p : parts) {
        if (!joined.empty() && joined.back().matched == p.matched) {
          joined.back().end = p.end;
        } else {
          joined.push_back(p);
        }
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Part& p : parts) {
        if (p.matched && !previous && !joined.empty()) {
          joined.back().end = p.end;
        } else {
          joined.push_back(p);
        }
        previous = p.matched;
      }
      break;
    case Behavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      for (const Part& p : parts) {
        if (p.matched && !previous && !joined.empty()) {
          joined.back().begin = p.begin;
        } else {
          joined.push_back(p);
        }
        previous = p.matched;
      }
      std::reverse(joined.begin(), joined.end());
      break;
  }
  std::vector<std::string_view> out;
  for (const Part& p : joined) {
    if (p.end > p.begin) out.push_back(text.substr(p.begin, p.end - p.begin));
  }
  return out;
}

Status PreTokenizer::ApplyStep(const Step& step, Piece piece, std::vector<Piece>* out) {
  std::string& text = piece.text;
  const bool prefix = step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && piece.at_start);
  if (step.kind == Kind::kByteLevel) {
    if (prefix && !text.starts_with(' ')) text.insert(0, " ");
  } else if (step.kind == Kind::kMetaspace) {
    static const Result<Regex> space = Regex::Literal(" ");
    if (!space.ok()) return space.status().Clone();
    DT_ASSIGN_OR_RETURN(text, space->ReplaceAll(text, step.replacement));
    if (prefix && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  }
  std::vector<std::string_view> parts{text};
  if (step.split) {
    DT_ASSIGN_OR_RETURN(parts, Split(step.pattern, step.behavior, step.invert, text));
  }
  for (const std::string_view part : parts) {
    const bool at_start = piece.at_start && part.data() == text.data();
    out->push_back({step.kind == Kind::kByteLevel ? BytesToLetters(part) : std::string(part), at_start});
  }
  return OkStatus();
}

Result<std::vector<Piece>> PreTokenizer::Apply(std::vector<Piece> pieces) const {
  for (const Step& step : steps_) {
    std::vector<Piece> next;
    for (Piece& piece : pieces) {
      if (!piece.text.empty()) DT_RETURN_IF_ERROR(ApplyStep(step, std::move(piece), &next));
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace dovetail
