#include "common/grammar/json_formats.h"

namespace foretoken {
namespace {

struct FormatRow {
  std::string_view name;
  std::string_view pattern;
};

// Years from 1000, days that the month has, 29 February in leap years.
#define FORETOKEN_DATE                                       \
  "([1-9][0-9]{3}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])" \
  "|[1-9][0-9]{3}-(0[469]|11)-(0[1-9]|[12][0-9]|30)"         \
  "|[1-9][0-9]{3}-02-(0[1-9]|1[0-9]|2[0-8])"                 \
  "|([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define FORETOKEN_TIME                                       \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?" \
  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define FORETOKEN_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
// Shorter, so that an address has at most 249 characters: RFC 5321 allows 254.
#define FORETOKEN_MAIL_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,55}[A-Za-z0-9])?"
#define FORETOKEN_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

constexpr FormatRow kFormats[] = {
    {"date", FORETOKEN_DATE},
    {"time", FORETOKEN_TIME},
    {"date-time", FORETOKEN_DATE "T" FORETOKEN_TIME},
    {"duration",
     "P([0-9]{1,6}W|([0-9]{1,6}Y([0-9]{1,6}M([0-9]{1,6}D)?)?|[0-9]{1,6}M([0-9]{1,6}D)?|[0-9]{1,6}D)"
     "(T([0-9]{1,6}H([0-9]{1,6}M([0-9]{1,6}S)?)?|[0-9]{1,6}M([0-9]{1,6}S)?|[0-9]{1,6}S))?"
     "|T([0-9]{1,6}H([0-9]{1,6}M([0-9]{1,6}S)?)?|[0-9]{1,6}M([0-9]{1,6}S)?|[0-9]{1,6}S))"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" FORETOKEN_MAIL_LABEL
              "(\\." FORETOKEN_MAIL_LABEL "){0,2}\\.[A-Za-z]{2,12}"},
    {"hostname", FORETOKEN_LABEL "(\\." FORETOKEN_LABEL "){0,2}"},
    {"ipv4", FORETOKEN_OCTET "(\\." FORETOKEN_OCTET "){3}"},
    {"ipv6", "[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){7}"},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]{1,15}://" FORETOKEN_LABEL "(\\." FORETOKEN_LABEL "){0,3}(:[0-9]{1,4})?"
     "(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}){0,40}){0,8}"
     "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,100})?"
     "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,40})?"},
};

#undef FORETOKEN_DATE
#undef FORETOKEN_TIME
#undef FORETOKEN_LABEL
#undef FORETOKEN_MAIL_LABEL
#undef FORETOKEN_OCTET

}  // namespace

std::string_view pattern_of_format(std::string_view format) {
  for (const FormatRow& row : kFormats)
    if (row.name == format) return row.pattern;
  return {};
}

}  // namespace foretoken
