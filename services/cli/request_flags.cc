#include "services/cli/request_flags.h"

#include <algorithm>
#include <concepts>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/wire/client_codec.h"
#include "services/cli/flag_checks.h"

namespace foretoken::cli {
namespace {

// Shorter or older words for a flag.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"max_tokens", "-n,"},
    {"temperature", "-t,"},
    {"num_draft_tokens", "-k,--draft-len,"},
    {"adaptive", "--fixed,"},
};

// What a flag does that its key alone does not.
struct OtherFlag {
  std::string_view key;
  Limit limit;
  const char* sentence;
};
constexpr OtherFlag kOtherFlags[] = {
    // As many requests as answers.
    {"n", from_to(1, kMaxChoice + 1),
     "number of answers, all of one seed; answer i is the same for every n"},
};

OtherFlag flag_for(std::string_view key, const Limit& limit, const char* sentence) {
  for (const OtherFlag& other : kOtherFlags)
    if (other.key == key) return other;
  return {key, limit, sentence};
}

// max_tokens -> "-n,--max-tokens"; a switch that is on by default: "--no-adaptive".
std::string flags_of(std::string_view key, bool is_on_by_default) {
  std::string flags;
  for (const auto& [name, others] : kOtherNames)
    if (name == key) flags = others;
  flags += is_on_by_default ? "--no-" : "--";
  for (const char c : key) flags += c == '_' ? '-' : c;
  return flags;
}

const char* group_of(wire::Topic topic) {
  switch (topic) {
    case wire::Topic::kSampling:
      return "Sampling";
    case wire::Topic::kSpeculation:
      return "Speculation";
    case wire::Topic::kRequest:
      break;
  }
  return "Request";
}

// A token id and its bias: "5=-1.5".
std::optional<std::pair<TokenId, float>> parsed_bias(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return {};
  const auto id = parsed<TokenId>(text.substr(0, equals));
  const auto bias = parsed<float>(text.substr(equals + 1));
  if (!id || *id < 0 || !bias) return {};
  return std::pair{*id, *bias};
}

// Makes the flag of one key; by type, as the listing has them. The member and the key outlive the
// parser, which keeps what it is given here.
class FlagMaker {
 public:
  FlagMaker(CLI::App* sub,
            wire::ClientRequest& request,
            std::string_view key,
            const Limit& limit,
            const char* sentence)
      : sub_(sub), request_(request), key_(key), limit_(limit), help_(sentence) {
    if (const auto range = range_text(limit); !range.empty()) help_ += "; " + range;
  }

  CLI::Option* make(bool& member) const {
    return sub_->add_flag_callback(
        flags_of(key_, member),
        [&request = request_, key = key_, &member, value = !member] {
          member = value;
          request.given.insert(key);
        },
        member ? "turn off: " + help_ : help_);
  }
  CLI::Option* make(float& member) const {
    const auto set = [&member](double value) { member = static_cast<float>(value); };
    return option<double>(set)->check(number(limit_))->type_name("NUMBER");
  }
  template <std::integral T>
  CLI::Option* make(T& member) const {
    const bool is_any = limit_.high > 0x1p53;  // a seed
    const auto low = is_any ? 0 : static_cast<std::uint64_t>(limit_.low);
    const auto high =
        is_any ? std::numeric_limits<T>::max() : static_cast<std::uint64_t>(limit_.high);
    if (limit_.off) {
      const auto off = static_cast<std::int64_t>(*limit_.off);
      const auto set = [&member, low, off](std::int64_t value) {
        member = static_cast<T>(value == off ? static_cast<std::int64_t>(low) : value);
      };
      return option<std::int64_t>(set)->check(whole(low, high, off))->type_name("INTEGER");
    }
    return option<T>([&member](T value) { member = value; })
        ->check(whole(low, high))
        ->type_name("INTEGER");
  }
  CLI::Option* make(std::string& member) const {
    CLI::Option* made = option<std::string>([&member](const std::string& text) { member = text; });
    return key_ == "model" ? made->type_name(kModelName) : made;
  }
  template <class E>
  requires std::is_enum_v<E> CLI::Option* make(E& member) const {
    static const std::vector<std::string> names(names_of(E{}).begin(), names_of(E{}).end());
    const auto set = [&member](const std::string& text) {
      member = value_named<E>(text).value_or(member);
    };
    return option<std::string>(set)->check(one_of(names))->type_name("NAME");
  }
  CLI::Option* make(ProposerSet& member) const {
    static const std::vector<std::string> names(kProposerNames.begin(), kProposerNames.end());
    const auto add = [&member](const std::string& text) {
      if (member == ProposerKind::kDefault) member = {};
      member.add(value_named<ProposerKind>(text).value_or(ProposerKind::kDefault));
    };
    return repeated<std::string>(add)->check(one_of(names))->type_name("NAME");
  }
  CLI::Option* make(std::vector<std::string>& member) const {
    return repeated<std::string>([&member](const std::string& text) { member.push_back(text); });
  }
  CLI::Option* make(std::vector<TokenId>& member) const {
    return repeated<TokenId>([&member](TokenId id) { member.push_back(id); })
        ->check(whole(0, std::numeric_limits<TokenId>::max()))
        ->type_name("ID");
  }
  CLI::Option* make(std::vector<std::pair<TokenId, float>>& member) const {
    const auto add = [&member](const std::string& text) {
      if (const auto bias = parsed_bias(text)) member.push_back(*bias);
    };
    return repeated<std::string>(add)
        ->check([limit = limit_](const std::string& text) {
          const auto bias = parsed_bias(text);
          if (!bias) return "\"" + text + "\" is not ID=BIAS, such as 5=-1.5";
          if (limit.contains(bias->second)) return std::string();
          return "\"" + text + "\" has a bias that is not " + range_text(limit);
        })
        ->type_name("ID=BIAS");
  }
  CLI::Option* make(std::optional<RequestId>& member) const {
    const auto set = [&member](const std::string& text) {
      member = wire::request_id_from_hex(text);
    };
    return option<std::string>(set)
        ->check([](const std::string& text) {
          return wire::request_id_from_hex(text) ? ""
                                                 : "\"" + text + "\" is not 32 hexadecimal digits";
        })
        ->type_name("HEX");
  }

 private:
  template <class T, class Set>
  CLI::Option* option(Set set) const {
    return sub_->add_option_function<T>(
        flags_of(key_, false),
        [&request = request_, key = key_, set](const T& value) {
          set(value);
          request.given.insert(key);
        },
        help_);
  }
  template <class T, class Add>
  CLI::Option* repeated(Add add) const {
    const auto add_all = [add](const std::vector<T>& values) {
      for (const T& value : values) add(value);
    };
    return option<std::vector<T>>(add_all)->allow_extra_args(false);  // said again for each
  }

  CLI::App* sub_;
  wire::ClientRequest& request_;
  std::string_view key_;
  Limit limit_;
  std::string help_;
};

}  // namespace

void add_request_flags(CLI::App* sub,
                       wire::ClientRequest& request,
                       const std::set<std::string_view>& without) {
  for (const auto topic :
       {wire::Topic::kSampling, wire::Topic::kSpeculation, wire::Topic::kRequest})
    wire::ClientRequest::fields(request, [&](const char* key, auto& member, const Limit& limit,
                                             wire::Topic of, const char* sentence) {
      if (of != topic || kNoFlags.contains(key) || without.contains(key)) return;
      const OtherFlag own = flag_for(key, limit, sentence);
      const FlagMaker flag(sub, request, own.key, own.limit, own.sentence);
      if constexpr (requires { flag.make(member); }) flag.make(member)->group(group_of(topic));
    });
}

}  // namespace foretoken::cli
