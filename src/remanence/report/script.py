"""What the page does in the browser: draw the charts, and save one as a picture."""

SCRIPT = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const page = document.documentElement;

function draw(name) {
  const place = document.getElementById(name);
  const options = {config: charts.config, actions: false, renderer: "svg", ast: true, tooltip: {theme: "page"}};
  vegaEmbed(place, charts.specs[name], options).catch((error) => { place.textContent = "No chart: " + error.message; });
}

function picture(name) {
  const drawing = document.getElementById(name).querySelector("svg").cloneNode(true);
  const colours = getComputedStyle(page);
  drawing.style.background = "var(--paper)";
  const text = new XMLSerializer().serializeToString(drawing);
  return text.replace(/var\\((--[a-z0-9-]+)\\)/g, (whole, name) => colours.getPropertyValue(name).trim());
}

function save(name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([picture(name)], {type: "image/svg+xml"}));
  link.download = name + ".svg";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

Object.keys(charts.specs).forEach(draw);
document.querySelectorAll("button[data-save]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => save(button.dataset.save));
});
"""
