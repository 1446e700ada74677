package etc

import "github.com/etc-ml/etc/internal/version"

// Version is the version of etc, as 1.2.3: what exported files record as their writer's, and the tag of a release has.
const Version = version.Number
