package adminapi

// PathConsoleCode takes a POST with a bearer token and gives a code that logs a browser in to the console once, within a minute. The code
// belongs behind the # of the login page's address, which browsers send to nobody.
const PathConsoleCode = "/ui/code"

// ConsoleCode is what PathConsoleCode answers.
type ConsoleCode struct {
	Code string `json:"code"`
}
