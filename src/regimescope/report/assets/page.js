"use strict";

// Draws every chart in the colors of the moment, and again when the reader changes them.
(() => {
  const source = document.getElementById("definitions");
  if (!source || typeof vegaEmbed === "undefined") return;
  const { charts, themes } = JSON.parse(source.textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  const draw = async ({ name, definition }) => {
    const theme = dark.matches ? "dark" : "light";
    const result = await vegaEmbed(document.getElementById(name), definition, {
      mode: "vega-lite",
      config: themes[theme],
      renderer: "svg",
      // Expressions are interpreted, so the page needs no permission for eval.
      ast: true,
      actions: { export: true, source: false, compiled: false, editor: false },
      tooltip: { theme },
      downloadFileName: name,
    });
    drawn.get(name)?.finalize();
    drawn.set(name, result);
  };

  const drawAll = () => {
    for (const chart of charts) {
      draw(chart).catch((error) => {
        document.getElementById(chart.name).textContent = `The chart cannot be drawn: ${error.message}`;
      });
    }
  };

  dark.addEventListener("change", drawAll);
  drawAll();
})();
