#include "services/cli/manual.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <string_view>

#include "common/base/nearest.h"
#include "common/config/describe.h"
#include "common/config/resolve.h"
#include "common/messages/types.h"
#include "common/runtime/manual.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr std::string_view kConfiguration = "foretoken.toml";

struct Page {
  CLI::App* app;
  ManualHead head;
};

std::vector<CLI::App*> verbs_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App* verb) { return !verb->get_group().empty(); });
}

bool is_service(std::string_view page) {
  return std::ranges::any_of(wire::kServiceRoles, [&](wire::Role role) {
    return page == "foretoken-" + std::string(name_of(role));
  });
}

// Every verb and group of verbs below `app`. A group that is called as a service leaves the page of
// that name to it; its verbs have theirs.
void collect(CLI::App& app,
             const std::string& name,
             const std::string& command,
             std::map<std::string, Page>& pages) {
  const auto verbs = verbs_of(app);
  Page page{&app, {.name = name, .command = command, .section = 1, .see_also = {}}};
  if (command != "foretoken") page.head.see_also.emplace_back("foretoken", 1);
  for (CLI::App* verb : verbs) {
    const std::string below = name + "-" + verb->get_name();
    if (!is_service(below))
      page.head.see_also.emplace_back(below, 1);
    else
      for (CLI::App* own : verbs_of(*verb))
        page.head.see_also.emplace_back(below + "-" + own->get_name(), 1);
  }
  page.head.see_also.emplace_back(kConfiguration, 5);
  if (!is_service(name)) pages.emplace(name, std::move(page));
  for (CLI::App* verb : verbs)
    collect(*verb, name + "-" + verb->get_name(), command + " " + verb->get_name(), pages);
}

std::map<std::string, Page> pages_of(CLI::App& app) {
  std::map<std::string, Page> pages;
  collect(app, "foretoken", "foretoken", pages);
  return pages;
}

// The services print their own pages.
std::vector<std::string> services_beside() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(program_folder(), error)) {
    const std::string name = entry.path().filename().string();
    if (is_service(name)) names.push_back(name);
  }
  return names;
}

int print_page_of_service(const std::string& name) {
  const std::string file = program_folder() + "/" + name;
  ::execl(file.c_str(), name.c_str(), "--man", static_cast<char*>(nullptr));
  const int cause = errno;  // writing may change it
  std::cerr << "error: " << file << " cannot be run: " << std::strerror(cause) << "\n";
  return kExitFailed;
}

int print_page(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout) return kExitOk;
  std::cerr << "error: could not write to standard output\n";
  return kExitFailed;
}

}  // namespace

std::vector<std::string> manual_names(CLI::App& app) {
  std::vector<std::string> names = services_beside();
  names.emplace_back(kConfiguration);
  for (const auto& [name, page] : pages_of(app)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

int print_manual(CLI::App& app, const std::vector<std::string>& words) {
  std::string name;
  for (const auto& word : words) name += (name.empty() ? "" : "-") + word;
  if (!name.starts_with("foretoken")) name = name.empty() ? "foretoken" : "foretoken-" + name;
  if (name == kConfiguration) return print_page(configuration_manual(release_name()));
  const auto pages = pages_of(app);
  if (const auto page = pages.find(name); page != pages.end())
    return print_page(manual_page(*page->second.app, page->second.head));
  const auto services = services_beside();
  if (std::find(services.begin(), services.end(), name) != services.end())
    return print_page_of_service(name);
  const auto near = nearest(name, manual_names(app));
  std::cerr << "error: there is no manual page " << name << "\n";
  if (near) std::cerr << "  did you mean `foretoken help --man " << *near << "`?\n";
  return kExitUsage;
}

}  // namespace foretoken::cli
